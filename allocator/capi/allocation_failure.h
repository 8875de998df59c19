// AllocationFailure: what stalloc_malloc throws. A std::bad_alloc, so that callers who know nothing of stalloc can
// catch it.
#pragma once

#include <cstdio>
#include <cstring>
#include <new>
#include <string>

namespace stalloc {

class AllocationFailure : public std::bad_alloc {
 public:
  explicit AllocationFailure(const std::string& message) noexcept {
    std::snprintf(message_, sizeof(message_), "stalloc: %s", message.c_str());
  }
  // Adds a line, as far as there is space.
  void Append(const std::string& line) noexcept {
    const std::size_t used = std::strlen(message_);
    std::snprintf(message_ + used, sizeof(message_) - used, "\n  %s", line.c_str());
  }
  [[nodiscard]] const char* what() const noexcept override { return message_; }

 private:
  char message_[2048];  // copying must not throw, and memory is what lacks
};

}  // namespace stalloc
