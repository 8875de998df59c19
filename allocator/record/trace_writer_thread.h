// TraceWriterThread: empties the ring into the trace file.
//
// Writes a chunk when it is full, at the end of a phase (init, iteration, fence), when a flush requests it, and when
// rows have waited for a second; the last one when it is stopped. It looks at the ring every few milliseconds by
// itself, so that callers need not wake it. After a write error it goes on emptying the ring and keeps nothing: callers
// never wait for a full disk. The path is this process's from its first allocation on: one that has allocated nothing
// is in nobody's way. At a limit of rows the file is cut back to its last whole iteration and ended. Thread-safe but
// for Start and Stop.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "allocator/record/event_ring.h"
#include "allocator/record/mark_table.h"
#include "allocator/record/python_stacks.h"
#include "allocator/record/text_table.h"
#include "allocator/record/trace_assembler.h"
#include "allocator/record/trace_file.h"
#include "proto/model/result.h"
#include "proto/model/trace.h"

namespace stalloc {

class TraceWriterThread {
 public:
  struct Options {
    std::size_t chunk_events = 1u << 14;
    std::uint64_t max_events = 0;  // 0: no limit
    bool waits = false;            // rows begin at a kBegin
  };
  // All outlive this object; `stacks` may be null.
  TraceWriterThread(EventRing* ring, MarkTable* marks, TextTable* texts, const PythonStacks* stacks,
                    const Options& options)
      : ring_(*ring), marks_(*marks), texts_(*texts), stacks_(stacks), options_(options), assembler_(options.waits) {}
  TraceWriterThread(const TraceWriterThread&) = delete;
  TraceWriterThread& operator=(const TraceWriterThread&) = delete;

  // Opens the file, writes a first chunk that holds only the fingerprint, and starts the thread.
  [[nodiscard]] Status Start(const std::string& path, const Fingerprint& fingerprint);
  // Empties the ring for the last time, writes the last chunk, joins the thread and closes the file. Once.
  void Stop();

  // Returns when everything pushed before the call is in the file.
  void Flush() noexcept;
  void UpdateFingerprint(const Fingerprint& fingerprint);

  [[nodiscard]] std::string write_error() const;
  [[nodiscard]] std::uint64_t unpaired() const noexcept { return unpaired_.load(std::memory_order_relaxed); }

  // In a forked child, where the thread does not exist: closes the child's copy of the file.
  void AbandonInChild() noexcept { file_.Close(); }

 private:
  void Loop();
  void Take(const RecordedEvent& event);
  // Serves flushes and rows that have waited long enough. `idle`: the ring was found empty.
  void WriteWhereDue(bool idle);
  // Writes the chunk in hand, unless it says nothing new.
  void WriteChunk(bool last);
  void Fail(const std::string& error);
  // Remembers the place between two iterations, where a trace that becomes too long can end.
  void NoteIteration(const Mark& mark);
  void EndAtLimit();

  EventRing& ring_;
  MarkTable& marks_;
  TextTable& texts_;
  const PythonStacks* const stacks_;
  const Options options_;

  // The writer thread's own.
  TraceFile file_;
  TraceAssembler assembler_;
  std::string frame_;
  std::int64_t last_write_ns_ = 0;
  std::size_t texts_written_ = 0;
  std::size_t calls_written_ = 0;
  bool seen_iteration_ = false;
  TraceFile::Place whole_;  // after the last whole iteration; of byte 0: there is none
  std::uint64_t whole_events_ = 0;
  bool claimed_ = false;  // the path, with the first allocation
  bool ended_ = false;    // by the limit
  bool failed_ = false;
  bool running_ = false;  // before that, errors are Start's to return

  // Shared.
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> flush_wanted_{0};  // a ring position
  std::atomic<std::uint64_t> flushed_{0};       // a ring position
  std::atomic<std::uint32_t> flush_word_{0};    // advances with flushed_
  std::atomic<std::uint64_t> unpaired_{0};
  mutable std::mutex mutex_;  // guards the three below
  Fingerprint fingerprint_;
  bool fingerprint_is_new_ = true;
  std::string write_error_;
  std::thread thread_;
};

}  // namespace stalloc
