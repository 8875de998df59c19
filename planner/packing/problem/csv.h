// The public CSV format of packing instances, as minimalloc reads and writes it.
//
//   id,lower,upper,size            lifetimes are half-open ticks [lower, upper); sizes in bytes
//   id,lower,upper,size,offset     a solved instance
// Columns may come in any order; others are refused by name. Ids are unique unsigned numbers. Cold path: errors are
// absl::Status with file, line, what was expected and what was found.
#pragma once

#include <istream>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/packing/problem/problem.h"

namespace stalloc::planner {

struct CsvInstance {
  Problem problem;
  std::vector<Offset> offsets;  // parallel to the blocks; empty where there is no offset column
};

// `name` stands for the input in errors.
[[nodiscard]] absl::StatusOr<CsvInstance> ReadCsv(std::istream& input, const std::string& name);
[[nodiscard]] absl::StatusOr<CsvInstance> ReadCsvFile(const std::string& path);

// Writes the instance with an offset column, or without one for an empty packing. REQUIRES: packing is parallel to the
// blocks or has no offsets, no block has two lifetimes.
void WriteCsv(const Problem& problem, const Packing& packing, std::ostream& output);
// Writes to a temporary name next to `path`, then renames: a reader never sees half of it.
[[nodiscard]] absl::Status WriteCsvFile(const Problem& problem, const Packing& packing, const std::string& path);

}  // namespace stalloc::planner
