"""What the documents leave open, and what this machine does there. Each choice has a name, a place in the code, and a reason.

docs/isa.md lists them. Certainty: "inferred" agrees with every published result and is not documented; "chosen"
rests on nothing public.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    name: str
    certainty: str
    what: str
    why: str
    place: str


CHOICES: tuple[Choice, ...] = (
    # numerics
    Choice("infinity in the MAU", "inferred", "An exponent of all ones counts as 2^128 (half and single "
        "operations) or 2^1024 (double) with mantissa 0; the "
           "result saturates again. So inf * inf - inf = +inf, 0 * inf - inf = -inf, inf - inf = +0.",
           "No special treatment in the data path explains all published results.", "device/numerics/formats.py: value"),
    Choice("infinite half factors", "chosen", "A half infinity enters a product as 2^128, so that it is "
        "an infinity among the single results.",
           "2^32, its value without special treatment, would "
               "turn infinities into ordinary numbers.", "device/numerics/reference/mau.py: INFINITY_EXPONENT"),
    Choice("infinite and mixed block floats", "chosen", "A block that holds an infinity converts to infinities. "
        "In a half product a block has the largest exponent field of its "
           "elements; one with exponent field 0 counts from 6 below; an infinite block has the "
               "mantissas of 1.0 at 2^128. In f, g and d blocks each element has its own exponent.",
           "The manual calls mixed blocks undefined.", "device/numerics/reference/mau.py: block_elements"),
    Choice("products of extended half blocks", "chosen", "Exact: no rounding when the products are shifted by 6 or 12 places.",
           "The manual says that it simplifies here.", "device/numerics/fast/matrix.py: half"),
    Choice("value of a block-float mantissa", "inferred", "The first mantissa bit is worth 2^(exponent - bias): "
        "the conversion shifts 1.m right by one and keeps the exponent.",
           "Otherwise a conversion would change values.", "device/numerics/reference/mau.py: block_elements"),
    Choice("rounding of gbfn", "inferred", "Mantissas are rounded at 23 bits; the "
        "MAU ignores the low 5.", "The text gives g the procedure of f.",
           "device/numerics/reference/blockfloat.py: convert"),
    Choice("position of hbfn/6..8", "inferred", "The kept bits are at the low end of the field "
        "and the exponent grows by 9 - n.", "The wording of the manual with b = 9 - n.",
           "device/numerics/reference/blockfloat.py: convert"),
    Choice("carry of hbfn", "inferred", "An element of the largest exponent whose shifted 1.m rounds up to "
        "one bit more raises the exponent of the block by one.",
           "For 9 bits this is the documented all-ones mantissa.", "device/numerics/reference/blockfloat.py: convert"),
    Choice("exponent distance of hbfe", "inferred", "The difference of 6 + b counts from the common "
        "exponent, which includes b.", "Only then do n bits stay.",
           "device/numerics/reference/blockfloat.py: convert"),
    Choice("rsqrt", "inferred", "k/64 with k = min(63, floor(64/sqrt(lo))) over 16 intervals of "
        "the mantissa and the parity of the exponent.",
           "Reproduces published results bit for bit.", "device/numerics/reference/alu.py: rsqrt"),
    Choice("rsqrt of infinity, half rsqrt", "chosen", "rsqrt(inf) = +0; "
        "half works like single.", "The limit.", "device/numerics/reference/alu.py: rsqrt"),
    Choice("lrelu of infinity", "chosen", "lrelud and lreluo leave an infinite y as it is.", "Lowering the exponent of "
        "infinity would make a number of it.",
           "device/numerics/reference/alu.py: lower_exponent"),
    Choice("corners of floor and ftoi", "chosen", "floor leaves infinities and integers as they are, mantissas of infinities "
           "too, gives +0 for positive numbers below 1 and keeps the sign of zeros. ftoi gives 0 for zeros and the end of "
           "the range for infinities; with u -inf gives the largest integer, as |x| does.",
           "The wording; zeros have a sign and no mantissa.", "device/numerics/reference/alu.py: floor, ftoi"),
    Choice("unsigned flags", "chosen", "uinc and uadd: 1 without a carry out of the element; udec and usub: 1 without a "
           "borrow. umax and umin: 1 where x is the result.", "The flag says that the result is exact.",
           "device/engine/alu.py: CARRIES"),
    Choice("suffix r of inputs", "inferred", "One rounding to nearest even; infinity stays infinity, a "
        "zero keeps its sign, underflow gives +0.", "As for results.",
           "device/numerics/formats.py: convert"),
    Choice("r results of f and d", "inferred", "Two halves in the MSB word, one "
        "single in the MSB word.", "As for h.", "device/engine/mau.py: decode"),
    Choice("flags of r results", "chosen", "Two halves of f give two bits each, like two "
        "singles; a single of d gives four.", "Elements keep their bits.",
           "device/engine/mau.py: emit_flags"),
    Choice("low parts", "inferred", "Parts that a narrow operand does not have are read as zero; "
        "the LSB LW of d, f and g results is zero.", "Known results agree.",
           "device/engine/views.py: View"),
    Choice("infinity in network sums", "chosen", "Counts as its hidden bit at the top "
        "exponent, as in the MAU.", "One reading of infinity.", "device/numerics/reference/network.py: add_stage"),
    # network
    Choice("stages of L1BM sums", "inferred", "Stage 1 adds MABs 4i..4i+3, stage 2 "
        "the four results.", "The order of the wiring.", "device/numerics/reference/network.py: add"),
    Choice("stages of mvr", "inferred", "First the two L2BMs of each group, then the four groups, "
        "each a number of the operation's precision.", "The hierarchy.",
           "device/engine/moves.py: _mvr"),
    Choice("l1bmm4 and the LW form of l1bmr4", "inferred", "Addresses a + 32c + 8 quarter + 4k + p, or "
        "a + 16c + 4 quarter + p.", "The layout rule of the 2LW form.",
           "device/engine/network.py: read_table"),
    Choice("what fills $lbf", "chosen", "Transfers from L1BM to the PEs only.", "The other direction "
        "brings nothing to the PE.", "device/engine/decoder.py: Decoder"),
    Choice("two transfers to the PEs in a step", "chosen", "Of one from L1BM and one from the turnaround register $lbf shows "
           "the one from L1BM.", "They are groups of their own; the order in the line does not count.",
           "device/engine/decoder.py: _order"),
    Choice("DAR writes", "chosen", "l2bmdars fills a buffer of 512 words (upper word of each LW first) and "
        "sets the first DAR entry; each l2bmdarw writes four words. Beside l2bmdars it sends what the buffer held before.",
           "One word a cycle is documented.", "device/engine/network.py: _dars, _darw"),
    Choice("nd of indirect moves", "chosen", "nd pieces of 16 LW follow each other from "
        "the address of one entry.", "Entries times nd.", "device/engine/moves.py: _indirect"),
    Choice("shifts of l1bmd from L1BM", "chosen", "By another number of MABs than one: executed, and reported as unknown.",
           "Only +1 and -1 are documented in this direction.", "device/isa/rules.py: _shifts"),
    Choice("j of GRF addresses", "chosen", "Changes nothing, and is reported as unknown.",
           "The syntax lists it, the address rule of the GRFs does not.", "device/isa/rules.py: _pe_offsets"),
    # masks
    Choice("bits of fixed mask entries", "inferred", "Entry 24 enables cycle 0 only: the first of "
        "the low four bits is cycle 0.", "The text form /1000.", "device/isa/rules.py: fixed_mask_cycles"),
    Choice("mask line without letters", "chosen", "With an entry other than 0 every write is switched "
        "off; `mask 0` switches masks off.", "The wording.",
           "device/engine/decoder.py: mask_of"),
    Choice("mask line with entry 0 and letters", "chosen", "The listed memories get the entry of all ones, "
        "the others are switched off.", "The wording.",
           "device/engine/decoder.py: mask_of"),
    Choice("letters t and p behind a mask", "chosen", "t: the mask covers the whole access; "
        "p: it covers a part.", "Total and partial.", "device/isa/rules.py: _assertion"),
    Choice("masked word writes", "inferred", "A W write is guarded by bits 0 and 1 "
        "whatever its address.", "The mask acts before the narrowing.", "device/engine/decoder.py: guards"),
    Choice("forwards of flushed results", "chosen", "A forward register shows the result after its zero flush.",
           "The flush comes before the write.", "device/engine/decoder.py: Decoder._flush"),
    # hazards
    Choice("hazards .2 to .5", "chosen", "Fewer than 3 steps between are reported as "
        "unknown, for any address.", "The rules exist; all known code keeps 3.",
           "device/isa/hazards.py: L1_RULES"),
    Choice("hazard .1", "chosen", "L1BM->L2BM followed by "
        "a move is not reported.", "A distance of 0 is in use.", "device/isa/hazards.py: L1_RULES"),
    Choice("base address writes", "inferred", "One step between a write of a base address "
        "and an access of its LM.", "As for other PE memories.", "device/isa/hazards.py: BAR_DISTANCE"),
    Choice("2LW reductions of l1bmr", "chosen", "Other than ffadd, fmax, fmin and bor they are reported as unknown; of "
        "l1bmr4 they are errors.", "The sentence stands in the section of l1bmr4.", "device/isa/rules.py: _reductions"),
    Choice("reads of the turnaround register", "chosen", "By another kind of instruction than wrote it: unknown. With "
        "another shift than a shifted l1bmd wrote it with: an error.", "The following l1bmd must carry the same shift.",
           "device/isa/hazards.py: Hazards.turnaround"),
    # memories, dumps
    Choice("addresses of r lines", "chosen", "Address and count are in LW, in hex.", "As all DRAM addresses of the text "
        "form.", "device/engine/debug.py: decode"),
    Choice("default contents", "chosen", "Memories that were never written hold zeros; "
        "strict mode reports reads of them.", "The official emulator's contents are garbage.",
           "device/memory/dram.py: Fill"),
    Choice("dump names", "chosen", "MATX, MATY and PDM, after the pattern "
        "of the known ones.", "Not seen in any output.", "device/engine/debug.py: NAMES"),
    Choice("PDM dumps", "chosen", "`d get $p..` reads PDM.", "The official tool is "
        "known to read DRAM instead.", "device/engine/debug.py: read_place"),
    Choice("on-chip memories between programs", "chosen", "They survive programs of one process; DRAM and PDM "
        "of a board also survive the process.", "On the chip all survive.",
           "device/board/board.py: Board"),
    # time
    Choice("times of moves", "chosen", "Issue every 8 cycles, latency of 64 cycles, and "
        "the rates marked A in the MV table.", "Not public.", "device/spec.py: ASSUMED"),
    Choice("ports of moves", "chosen", "A move holds all its ports for its whole duration, in "
        "issue order; priorities change nothing.", "The arbitration is not public.",
           "device/engine/clock.py: Clock"),
    Choice("mvp with one side only", "chosen", "mvp names a group on both sides or on "
        "none; mixtures are errors.", "Not documented.", "device/timing.py: form_of"),
    Choice("PDM without a group", "chosen", "In mvb, mvd and mvr a PDM without @ "
        "is that of group 0.", "The one that the host reaches.", "device/timing.py: Side"),
    Choice("signs of matrix writes", "chosen", "mwrite sources take e and r, and no sign.", "Only these two are mentioned.",
           "device/isa/parser.py: _check_form"),
    Choice("texts of errors", "chosen", "Our own; they name the thing, the fact and what to do.",
           "The official texts are not public.", "device/isa/diagnostics.py: Diagnostic"),
    Choice("machine words", "chosen", "Not produced: the text form is the "
        "interchange format.", "Field contents are not public.", "device/isa/printer.py"),
)  # fmt: skip
