// Reads the recorded allocation runs of bench/corpus: one line per allocation, `iteration bytes alloc_tick free_tick`.
//
// Iteration -1 is set-up; a free tick of -1 means never freed; bytes as requested; one tick per allocation or free, in
// host order. For tests and benchmarks: aborts with a message when a file cannot be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/model/plan.h"
#include "proto/model/units.h"

namespace stalloc {

struct CorpusAllocation {
  int iteration = 0;
  Bytes bytes = 0;  // as requested
  Tick alloc = 0;
  Tick free = -1;
};

struct Corpus {
  std::vector<CorpusAllocation> allocations;  // in order of allocation

  // The requests of one iteration, in order.
  [[nodiscard]] std::vector<CorpusAllocation> Iteration(int iteration) const;
};

// `name` without directory and ending, as "gpt_dense". Found under $STALLOC_SOURCE_DIR, else where the sources were
// built.
[[nodiscard]] Corpus ReadCorpus(const std::string& name);

// A script of the rounded sizes of `requests`: static entries with no slots.
[[nodiscard]] Script ScriptOf(const std::vector<CorpusAllocation>& requests);

}  // namespace stalloc
