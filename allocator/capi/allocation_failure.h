// AllocationFailure: what stalloc_malloc throws. A std::bad_alloc, so that callers who know nothing of stalloc can
// catch it.
#pragma once

#include <cstdio>
#include <new>
#include <string>

namespace stalloc {

class AllocationFailure : public std::bad_alloc {
 public:
  explicit AllocationFailure(const std::string& message) noexcept {
    std::snprintf(message_, sizeof(message_), "stalloc: %s", message.c_str());
  }
  [[nodiscard]] const char* what() const noexcept override { return message_; }

 private:
  char message_[512];  // copying must not throw, and memory is what lacks
};

}  // namespace stalloc
