// Recorder: takes allocation events from any thread and writes them to a trace file from a thread of its own.
//
// The caller's path copies one fixed-size event into a bounded ring: no heap memory, no file I/O, no lock (target <=
// 150 ns). A full ring blocks the caller until the writer has made space; events are never dropped. The order of events
// in the file is the order of their ring tickets; callers record an allocation after they have the address and a free
// before they give it up, so that for one address the order in the file is alloc, free, alloc, free.
//
// The file grows under its final name in whole frames (proto/FORMAT.md): the valid prefix of a killed process's file is
// a valid trace. After fork() the child's copy is inert and owns no file; the parent's events are flushed before the
// fork.
//
// A recorder may wait: until Begin it writes no row, but follows what is live, and the trace then begins with those
// blocks, in the order of their allocation, with their sizes, streams and flags.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "allocator/record/python_stacks.h"
#include "proto/model/block_use.h"
#include "proto/model/result.h"
#include "proto/model/trace.h"
#include "proto/model/units.h"

namespace stalloc {

struct RecorderOptions {
  std::string path;  // created exclusively: two processes on one path are an error that names the other's pid
  Fingerprint fingerprint;
  std::uint32_t ring_events = 1u << 16;  // a power of two
  std::uint32_t chunk_events = 1u << 14;
  bool waits = false;  // for Begin
  // Rows at most; 0: no limit. A trace that reaches it is cut back to its last whole iteration and ended there in
  // order; if there is none, it ends where it is, without its last chunk.
  std::uint64_t max_events = 0;
  // Python stacks of allocations. Where the process has no Python there are none, and a warning says so.
  StackSampling stacks = {};
};

// A tensor in a block; `name` is the number of a text.
struct TensorPlace {
  Offset offset = 0;  // from the block's begin
  Bytes bytes = 0;    // 0: not known
  TensorRole role = TensorRole::kNone;
  std::uint32_t name = 0;
};

class Recorder {
 public:
  static Result<std::unique_ptr<Recorder>> Open(RecorderOptions options);
  // Flushes, writes the last chunk and joins the writer.
  virtual ~Recorder() = default;

  virtual void Allocated(DeviceIndex device, const void* pointer, Bytes requested, StreamHandle stream,
                         std::uint32_t flags) noexcept = 0;
  virtual void Freed(const void* pointer) noexcept = 0;
  virtual void StreamRecorded(const void* pointer, StreamHandle stream) noexcept = 0;
  virtual void Marked(const Mark& mark) = 0;  // copies the name: cold path
  virtual void Held(DeviceIndex device, Bytes bytes) noexcept = 0;

  // The number of a text in the trace; equal texts have one. Cold path: locks, and takes memory for a new one.
  [[nodiscard]] virtual std::uint32_t Text(std::string_view text) = 0;
  // What lies in the block that begins at `block`. Ignored where no such block is live, or it is known already.
  virtual void Named(const void* block, const TensorPlace& tensor) noexcept = 0;

  // An operation (the number of its name among the texts) that began at `began_ns` (CLOCK_MONOTONIC) uses the block
  // that begins at `block`; in order with this thread's events. Ignored where no such block is live, or where it is the
  // argument of an operation that had begun before the block was allocated: the address has a new owner. Of a layer's
  // input the name is the layer's, and `began_ns` is not looked at; the next mark that ends the layer is its call's.
  virtual void Used(const void* block, UseKind kind, std::int64_t began_ns, std::uint32_t operation) noexcept = 0;

  // Ends the waiting; nothing where there was none. In order with this thread's events.
  virtual void Begin() = 0;

  // Becomes known only after CUDA init (device name, driver): written with the next chunk.
  virtual void UpdateFingerprint(const Fingerprint& fingerprint) = 0;

  // Returns when every event recorded so far by this thread is in the file (handed to the kernel).
  virtual void Flush() = 0;

  // Writes the last chunk, closes the file and ends the writer; later calls do nothing. For an orderly end at exit
  // while other threads may still call (unlike the destructor).
  virtual void Close() = 0;

  struct Counters {
    std::uint64_t events = 0;
    std::uint64_t blocked = 0;  // times a caller had to wait for space
    std::uint64_t unpaired =
        0;                    // frees and uses of addresses not seen allocated, and frees missed; as of the last chunk
    std::string write_error;  // empty, or what stopped writing (disk full): later events are counted, not kept
  };
  [[nodiscard]] virtual Counters GetCounters() const = 0;
};

}  // namespace stalloc
