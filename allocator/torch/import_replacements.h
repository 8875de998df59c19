// ImportReplacements: functions that loaded libraries import, and ours to come in their place: all of them or none.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "allocator/base/import_table.h"
#include "proto/model/result.h"

namespace stalloc {

class ImportReplacements {
 public:
  // Error: the library is not there.
  Status Read(const char* library) {
    Result<ImportTable> table = ImportTable::Of(library);
    if (!table.ok()) return Error{table.error()};
    tables_.push_back(std::move(table.value()));
    return Ok{};
  }
  [[nodiscard]] const ImportTable& last() const { return tables_.back(); }

  // For the library that was read last: `real` is what it imports, `ours` is to come in its place. Error: it does not
  // import it.
  template <typename Function>
  Status Want(const char* symbol, Function*& real, Function* ours) {
    const Result<void*> function = last().Function(symbol);
    if (!function.ok()) return Error{function.error()};
    real = reinterpret_cast<Function*>(function.value());
    wanted_.push_back({tables_.size() - 1, symbol, reinterpret_cast<void*>(ours), function.value()});
    return Ok{};
  }
  template <typename Function>
  void WantIfImported(const char* symbol, Function*& real, Function* ours) {
    (void)Want(symbol, real, ours);
  }

  [[nodiscard]] bool empty() const { return wanted_.empty(); }
  // All or, with an error, none.
  Status Replace() {
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      const Result<void*> replaced = tables_[wanted_[i].table].Replace(wanted_[i].symbol, wanted_[i].ours);
      if (replaced.ok()) continue;
      while (i-- > 0) (void)tables_[wanted_[i].table].Replace(wanted_[i].symbol, wanted_[i].real);
      return Error{replaced.error()};
    }
    return Ok{};
  }

 private:
  struct Wanted {
    std::size_t table;
    const char* symbol;
    void* ours;
    void* real;
  };
  std::vector<ImportTable> tables_;
  std::vector<Wanted> wanted_;
};

}  // namespace stalloc
