"""A content-addressed store: bytes and kinds, recipes and results. It knows nothing of graphs, phases or Luigi.

store = mlsdk.store.open()                      # $MLSDK_STORE or ~/.cache/open-mlsdk
recipe = Recipe("Upper", 1, {"locale": "C"}, {"text": digest_of(b"x")})
action = store.get(recipe) or store.publish(recipe, {"result.txt": b"X"})
store.read(action.outputs["result.txt"])        # verified, always
store.ls(kind="vsm"), store.log("digits"), ...  # the questions of `mlsdk store`, see questions.py
"""

from mlsdk.store.actions import Action, Output
from mlsdk.store.codec import canonical, decode
from mlsdk.store.digest import of_bytes as digest_of
from mlsdk.store.errors import (
    BadName,
    BadParcel,
    BadQuery,
    IndexDamaged,
    IndexNewer,
    NonDeterministic,
    NotAStore,
    NotFound,
    ObjectDamaged,
    ObjectLost,
    ObjectMissing,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
)
from mlsdk.store.history import Build, Event
from mlsdk.store.memory import Memory
from mlsdk.store.place import Address, location
from mlsdk.store.recipe import Change, Recipe, changes
from mlsdk.store.store import Store
from mlsdk.store.store import open_store as open

__all__ = [
    "Action",
    "Address",
    "BadName",
    "BadParcel",
    "BadQuery",
    "Build",
    "Change",
    "Event",
    "IndexDamaged",
    "IndexNewer",
    "Memory",
    "NonDeterministic",
    "NotAStore",
    "NotFound",
    "ObjectDamaged",
    "ObjectLost",
    "ObjectMissing",
    "Output",
    "Recipe",
    "Store",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "canonical",
    "changes",
    "decode",
    "digest_of",
    "location",
    "open",
]
