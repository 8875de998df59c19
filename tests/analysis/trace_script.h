// Traces from a compact script, for tests. Tokens, separated by blanks:
//
//   +w=4096      allocate block w (a name may be used again once freed); +w=4096@1 on stream 1; +w=4096! captured
//                in a pool that is not known, +w=4096!2 in pool 2 (1 + its ordinal), +w=4096!2^512 512 bytes behind
//                where all addresses of the trace begin; +w=4096r recomputed
//   -w           free it                       ~w@1     record it on stream 1
//   I  I?        iteration begins, numbered from 0; automatic mark
//   E            iteration ends                INIT     set-up begins
//   F0  B0       micro-batch 0 forward / backward begins
//   O  O?  O-    optimizer begins; automatic; ends   L:mlp    layer mlp begins
//   LB:mlp       its backward pass begins  LE:mlp LBE:mlp   either ends; LE:mlp=512: its own backward pass keeps 512
//                bytes of its output, LE:mlp=none: there are no gradients; LE:mlp<w,x: it was called with w and x, and
//                LE:mlp=512<: with no block; LE:mlp<<w: what it stores there can be switched off
//   C0  C0-  R0  graph 0's capture begins, ends; it is replayed      P1  the state of pool 1 may be set back
//   (eval  )     fence begins, ends            H=4096   upstream holds so much
//   D1           later allocations are on device 1
#pragma once

#include <string>
#include <string_view>

#include "proto/model/trace.h"

namespace stalloc::planner {

// REQUIRES: a well-formed script; throws std::invalid_argument naming the token otherwise.
[[nodiscard]] Trace TraceFromScript(std::string_view script);

// Sizes and places of a script that are in MiB, as bytes: "=4M" and "^4M" stand for "=4194304" and "^4194304".
[[nodiscard]] std::string InBytes(std::string_view script);

// `count` times the same text.
[[nodiscard]] std::string Repeat(std::string_view text, int count);

}  // namespace stalloc::planner
