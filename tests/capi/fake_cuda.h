// FakeCuda: a table of the driver's functions over a model of its stream-ordered pool, for tests without a GPU.
//
// Keeps a log of what was asked, in order: "alloc 1 2048", "record 7", "wait 1 7", "free 1". One at a time; not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "allocator/driver/cuda_api.h"

namespace stalloc {

class FakeCuda {
 public:
  FakeCuda();
  ~FakeCuda() { g_fake = nullptr; }
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  [[nodiscard]] const cuda::Api& api() const { return api_; }
  [[nodiscard]] static cuda::Context context() { return reinterpret_cast<cuda::Context>(0x77); }

  std::size_t capacity = 1 << 20;            // of the pool, bytes
  std::set<std::uint64_t> capturing;         // streams
  cuda::Context thread_context = context();  // without one no stream can be queried
  bool in_use_until_sync = false;            // freed memory comes back only at a synchronisation
  std::vector<std::string> log;
  std::map<std::uint64_t, std::size_t> live;  // address to bytes
  std::size_t held = 0;
  std::size_t peak = 0;
  std::size_t waiting = 0;  // freed, not yet back

 private:
  static FakeCuda* g_fake;
  static std::uint64_t Id(cuda::Stream stream) { return reinterpret_cast<std::uint64_t>(stream); }
  static cuda::Result Allocate(cuda::DevicePointer* pointer, std::size_t bytes, cuda::Stream stream);
  static cuda::Result Free(cuda::DevicePointer pointer, cuda::Stream stream);
  static cuda::Result Attribute(cuda::MemoryPool pool, int attribute, void* value);
  void SetFunctions();

  cuda::Api api_;
  std::uint64_t next_ = 0x1000;
  std::uint64_t next_event_ = 1;
  std::map<std::uint64_t, std::uint64_t> recorded_on_;  // event to stream
};

}  // namespace stalloc
