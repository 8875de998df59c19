// HostFile: one memfd as physical memory, given out in ranges. Bytes. Not thread-safe.
//
// A range that is given back is punched out of the file, so its pages return to the system at once; its place in the
// file is used again for a range of the same size, and otherwise left: file offsets cost nothing.
#pragma once

#include <map>

#include "proto/model/units.h"

namespace stalloc {

class HostFile {
 public:
  HostFile() = default;
  ~HostFile();
  HostFile(const HostFile&) = delete;
  HostFile& operator=(const HostFile&) = delete;

  // False with errno set when the system gives no memfd.
  bool Open() noexcept;
  // Leaves the memory to those that still map it.
  void Close() noexcept;

  // False when the file may not grow that far (RLIMIT_FSIZE, no memory for bookkeeping). The pages come at first touch,
  // zeroed.
  bool Take(Bytes bytes, Offset* offset) noexcept;
  void GiveBack(Offset offset, Bytes bytes) noexcept;

  // One more descriptor of the file, with a position of its own. False with errno set when the system gives none.
  bool Reopen(Offset position, int* descriptor) const noexcept;

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  // Pages that exist, bytes.
  [[nodiscard]] Bytes ResidentBytes() const noexcept;

 private:
  int descriptor_ = -1;
  Bytes file_bytes_ = 0;
  std::multimap<Bytes, Offset> unused_;  // size -> place
};

}  // namespace stalloc
