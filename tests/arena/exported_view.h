// ExportedView: the host memory of exported chunks, mapped one behind the other, as a receiving process maps them.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <span>

#include "proto/model/units.h"

namespace stalloc {

class ExportedView {
 public:
  // Each descriptor's position is where its chunk begins in the file (HostDriver::Export).
  ExportedView(std::span<const int> descriptors, Bytes chunk_bytes) : bytes_(descriptors.size() * chunk_bytes) {
    void* const reserved = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    begin_ = reserved == MAP_FAILED ? nullptr : static_cast<unsigned char*>(reserved);
    unsigned char* at = begin_;
    for (const int descriptor : descriptors) {
      const off_t position = lseek(descriptor, 0, SEEK_CUR);
      if (begin_ == nullptr ||
          mmap(at, chunk_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, position) == MAP_FAILED) {
        whole_ = false;
        break;
      }
      at += chunk_bytes;
    }
  }
  ~ExportedView() {
    if (begin_ != nullptr) munmap(begin_, bytes_);
  }
  ExportedView(const ExportedView&) = delete;
  ExportedView& operator=(const ExportedView&) = delete;

  // Null when a chunk could not be mapped.
  [[nodiscard]] unsigned char* begin() const { return whole_ ? begin_ : nullptr; }

 private:
  const Bytes bytes_;
  unsigned char* begin_ = nullptr;
  bool whole_ = true;
};

}  // namespace stalloc
