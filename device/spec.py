"""Every number of the emulated MN-Core 2, with how sure it is.

Plain constants carry a mark in their comment:
  [D] documented publicly, [I] inferred from published results, [A] assumed: nothing public, a sensible value was chosen.
`ASSUMED` lists the assumed ones by name, so that reports can show which of their figures rest on them.
Units: W word 32 bit, LW long word 64 bit, 2LW 128 bit; a step is 4 cycles.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

# --- hierarchy [D] ---------------------------------------------------------------------------------------------------
GROUPS: Final = 4
L2B_PER_GROUP: Final = 2
L2BS: Final = GROUPS * L2B_PER_GROUP  # 8
L1B_PER_L2B: Final = 8
L1BS: Final = L2BS * L1B_PER_L2B  # 64
MAB_PER_L1B: Final = 16
MABS: Final = L1BS * MAB_PER_L1B  # 1024
PE_PER_MAB: Final = 4
PE_PER_L1B: Final = MAB_PER_L1B * PE_PER_MAB  # 64
PES: Final = MABS * PE_PER_MAB  # 4096

# --- time ------------------------------------------------------------------------------------------------------------
CLOCK_HZ: Final = 750_000_000  # [D] core clock
GDDR6_MTPS: Final = 15_000  # [D] transfers a second and pin, millions
CYCLES_PER_STEP: Final = 4  # [D]
STEPS_PER_SECOND: Final = CLOCK_HZ / CYCLES_PER_STEP  # 187.5 M

# --- sizes of the memories -------------------------------------------------------------------------------------------
LM_WORDS: Final = 4096  # [D] words of LM0, and of LM1, per PE
GRF_WORDS: Final = 512  # [D] words of GRF0, and of GRF1, per PE
T_LW: Final = 8  # [D] 2LW per cycle
MASK_ENTRIES: Final = 32  # [D] 0 = all ones, 1..15 writable, 16..31 fixed
WRITABLE_MASKS: Final = range(1, 16)  # [D]
BAR_BITS: Final = 12  # [D]
L1BM_LW: Final = 8192  # [D] per L1B
L2BM_LW: Final = 32768  # [D] per L2B
PDM_LW: Final = 524_288  # [D] 4 MiB per group
DRAM_LW: Final = 536_870_912  # [D] 4 GiB per group
DAR_ENTRIES: Final = 1024  # [D] per group, 32 bit each
DAR_UNIT_LW: Final = 16  # [D] a DAR entry counts pieces of 16 LW
MATRIX_ROWS: Final = 16  # [D] rows of a matrix register side, one LW per PE and row
MV_TAGS: Final = range(1, 0x40)  # [D] i01..i3f

#: Rows and columns of a matrix register by precision [D]; f uses only the even columns of its 8x8 register.
MATRIX_SIZE: Final = MappingProxyType({"h": 16, "g": 8, "f": 8, "d": 4})

# --- throughput ------------------------------------------------------------------------------------------------------
#: Multiply-adds per MAU and cycle in matrix mode (rows x columns) [D].
MATRIX_MACS: Final = MappingProxyType({"d": 8, "f": 32, "g": 64, "h": 256})
#: Multiply-adds per MAB and cycle in vector mode [D]; there is no g vector mode.
VECTOR_MACS: Final = MappingProxyType({"d": 2, "f": 8, "h": 16})
DRAM_LW_PER_CYCLE: Final = 16  # [D] DRAM <-> L2BM in each group, groups in parallel: 96 GB/s
MV_ISSUE_CYCLES: Final = 8  # [A] one MV line per two PE steps: a flat block of the stream holds two PE lines and one MV
MV_LATENCY_CYCLES: Final = 64  # [A] from the start of an MV to its first data
MVB2_LW_PER_CYCLE: Final = 16  # [A] DRAM -> the two L2BMs of its group
MVP_DRAM_LOCAL_LW_PER_CYCLE: Final = 16  # [A] mvp DRAM <-> L2BM with explicit groups, both the same group
MVP_DRAM_REMOTE_LW_PER_CYCLE: Final = 8  # [A] the same between groups
MVP_PDM_LOCAL_LW_PER_CYCLE: Final = 16  # [D] PDM -> L2BM inside a group
MVP_PDM_REMOTE_LW_PER_CYCLE: Final = 8  # [D] PDM -> L2BM between groups
MVP_PDM_DRAM_LOCAL_LW_PER_CYCLE: Final = 16  # [A] PDM <-> DRAM inside a group
MVP_PDM_DRAM_REMOTE_LW_PER_CYCLE: Final = 8  # [A] PDM <-> DRAM and PDM -> PDM between groups
MVP_PDM_COPY_LW_PER_CYCLE: Final = 8  # [A] PDM -> PDM inside a group: one port reads and writes
MVB_LW_PER_CYCLE: Final = 8  # [D] PDM or DRAM of one group -> all L2BMs
MVB4_DRAM_LW_PER_CYCLE: Final = 8  # [D]
MVB4_L2BM_LW_PER_CYCLE: Final = 16  # [D]
MVR_L2BM_LW_PER_CYCLE: Final = 32  # [D] reduced stream of L2BM -> PDM or DRAM
MVR2_LW_PER_CYCLE: Final = 16  # [A] the two L2BMs of each group -> its DRAM or PDM
MVR4_L2BM_LW_PER_CYCLE: Final = 16  # [D]
MVR4_DRAM_LW_PER_CYCLE: Final = 8  # [D]
MVD_PDM_LW_PER_CYCLE: Final = 8  # [D] distribution PDM <-> L2BM or DRAM, on the PDM side

#: Names of the constants above that rest on an assumption, with the reason.
ASSUMED: Final = MappingProxyType(
    {
        "MV_ISSUE_CYCLES": "one MV line per two PE steps (flat packing); the documents give two rates that differ",
        "MV_LATENCY_CYCLES": "latencies of MV are not public",
        "MVB2_LW_PER_CYCLE": "taken as the DRAM rate of a group",
        "MVP_DRAM_LOCAL_LW_PER_CYCLE": "taken as in the parallel form",
        "MVP_DRAM_REMOTE_LW_PER_CYCLE": "taken as for PDM between groups",
        "MVP_PDM_DRAM_LOCAL_LW_PER_CYCLE": "taken as PDM -> L2BM inside a group",
        "MVP_PDM_DRAM_REMOTE_LW_PER_CYCLE": "taken as PDM -> L2BM between groups",
        "MVP_PDM_COPY_LW_PER_CYCLE": "one port reads and writes",
        "MVR2_LW_PER_CYCLE": "taken as the DRAM rate of a group",
    }
)
