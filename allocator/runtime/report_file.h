// ReportFile: a text file written without heap memory, for the moment when there may be none.
//
// Takes text by `+=` into a buffer of its own and writes it under a temporary name next to `path`; Commit renames it,
// so that readers see all of it or none. Errors are kept and come from Commit. Not thread-safe.
#pragma once

#include <cstddef>
#include <string_view>

namespace stalloc {

class ReportFile {
 public:
  static constexpr std::size_t kLongestPath = 1024;

  explicit ReportFile(const char* path) noexcept;
  // What was not committed is removed.
  ~ReportFile();
  ReportFile(const ReportFile&) = delete;
  ReportFile& operator=(const ReportFile&) = delete;

  ReportFile& operator+=(std::string_view text) noexcept;
  ReportFile& operator+=(char c) noexcept { return *this += std::string_view(&c, 1); }

  // 0, or the errno of the first thing that failed.
  [[nodiscard]] int Commit() noexcept;

 private:
  void Flush() noexcept;
  void Fail(int code) noexcept { error_ = error_ != 0 ? error_ : code; }

  char path_[kLongestPath];
  char temporary_[kLongestPath + 32];
  int descriptor_ = -1;
  int error_ = 0;
  std::size_t used_ = 0;
  char buffer_[16384];
};

}  // namespace stalloc
