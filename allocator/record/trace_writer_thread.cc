#include "allocator/record/trace_writer_thread.h"

#include <pthread.h>
#include <signal.h>

#include <limits>
#include <system_error>
#include <utility>

#include "allocator/base/clock.h"
#include "allocator/base/log.h"
#include "proto/codec/trace_chunk_writer.h"

namespace stalloc {
namespace {

constexpr std::size_t kBatch = 256;                         // events between two releases of ring cells
constexpr std::int64_t kPollNanoseconds = 5'000'000;        // how often an idle writer looks at the ring
constexpr std::int64_t kMaxAgeNanoseconds = 1'000'000'000;  // how long a row may wait for its chunk

// Marks after which a killed process should lose nothing.
bool EndsPhase(const Mark& mark) {
  if (mark.kind == MarkKind::kIteration) return true;
  return mark.edge == MarkEdge::kEnd && (mark.kind == MarkKind::kInit || mark.kind == MarkKind::kFence);
}

// Starts `run` with all signals blocked: the process's signals are for its own threads, where Python's handlers expect
// them.
Result<std::thread> StartWithoutSignals(void (*run)(void*), void* argument) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  Result<std::thread> thread = [&]() -> Result<std::thread> {
    try {
      return std::thread(run, argument);
    } catch (const std::system_error& error) {
      return Error{std::string("cannot start the writer thread: ") + error.what()};
    }
  }();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

Status TraceWriterThread::Start(const std::string& path, const Fingerprint& fingerprint) {
  if (Status opened = file_.Open(path); !opened.ok()) return opened;
  UpdateFingerprint(fingerprint);
  WriteChunk(false);
  if (failed_) return Error{write_error()};
  file_.Yield();
  auto thread = StartWithoutSignals([](void* self) { static_cast<TraceWriterThread*>(self)->Loop(); }, this);
  if (!thread.ok()) return Error{path + ": " + thread.error()};
  thread_ = std::move(thread).value();
  pthread_setname_np(thread_.native_handle(), "stalloc-record");
  return Ok{};
}

void TraceWriterThread::Stop() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  ring_.WakeConsumer();
  thread_.join();
  file_.Close();
}

void TraceWriterThread::Loop() {
  running_ = true;
  last_write_ns_ = MonotonicNanoseconds();
  while (true) {
    const std::uint32_t wake_word = ring_.wake_word();
    const bool stopping = stop_.load(std::memory_order_acquire);
    const std::size_t taken = ring_.Consume(kBatch, [this](const RecordedEvent& event) { Take(event); });
    WriteWhereDue(taken == 0);
    if (taken != 0) continue;
    const bool between_ticket_and_event = ring_.head() != ring_.tail();
    if (stopping && !between_ticket_and_event) break;
    ring_.WaitForEvents(wake_word, stopping || between_ticket_and_event ? kPollNanoseconds / 100 : kPollNanoseconds);
  }
  WriteChunk(true);
  flushed_.store(std::numeric_limits<std::uint64_t>::max(), std::memory_order_release);
  flush_word_.fetch_add(1, std::memory_order_release);
  FutexWakeAll(flush_word_);
}

void TraceWriterThread::Take(const RecordedEvent& event) {
  Mark mark;
  if (event.kind == RecordedKind::kMark) mark = marks_.Take(event.subject);
  if (ended_) return;
  if (event.kind == RecordedKind::kAlloc && !claimed_) {
    claimed_ = true;
    if (const Status claimed = file_.Claim(); !claimed.ok()) Fail(claimed.error());
  }
  const bool is_mark = event.kind == RecordedKind::kMark;
  if (is_mark && options_.max_events != 0) NoteIteration(mark);
  const bool ends_phase = is_mark && EndsPhase(mark);
  assembler_.Add(event, &mark);
  const TraceChunk& chunk = assembler_.chunk();
  if (options_.max_events != 0 && chunk.first_event + chunk.rows() >= options_.max_events) {
    EndAtLimit();
  } else if (ends_phase || chunk.rows() >= options_.chunk_events) {
    WriteChunk(false);
  }
}

// What was before the first explicit iteration is set-up; before the first automatic one, an iteration.
void TraceWriterThread::NoteIteration(const Mark& mark) {
  if (mark.kind != MarkKind::kIteration || mark.edge != MarkEdge::kBegin || failed_) return;
  if (seen_iteration_ || mark.automatic) {
    WriteChunk(false);
    whole_ = file_.place();
    whole_events_ = assembler_.chunk().first_event;
  }
  seen_iteration_ = true;
}

void TraceWriterThread::EndAtLimit() {
  if (!failed_ && whole_ == TraceFile::Place{}) {
    WriteChunk(false);
  } else if (!failed_) {
    TraceChunk last;
    last.first_event = whole_events_;
    last.last = true;
    frame_.clear();
    AppendTraceFrame(last, &frame_);
    Status written = file_.CutBackTo(whole_);
    if (written.ok()) written = file_.Append(frame_);
    if (!written.ok()) Fail(written.error());
  }
  ended_ = true;
  Log(LogSeverity::kWarning, "the trace has reached STALLOC_TRACE_MAX_EVENTS=%llu; it ends %s, and the run goes on",
      static_cast<unsigned long long>(options_.max_events),
      whole_ == TraceFile::Place{} ? "in its first iteration" : "with its last whole iteration");
}

void TraceWriterThread::WriteWhereDue(bool idle) {
  const std::uint64_t done = ring_.head();
  const std::uint64_t wanted = flush_wanted_.load(std::memory_order_acquire);
  if (wanted > flushed_.load(std::memory_order_relaxed) && done >= wanted) {
    WriteChunk(false);
    flushed_.store(done, std::memory_order_release);
    flush_word_.fetch_add(1, std::memory_order_release);
    FutexWakeAll(flush_word_);
  } else if (idle && MonotonicNanoseconds() - last_write_ns_ >= kMaxAgeNanoseconds) {
    WriteChunk(false);
  }
}

void TraceWriterThread::WriteChunk(bool last) {
  TraceChunk& chunk = assembler_.chunk();
  {
    const std::lock_guard lock(mutex_);
    chunk.has_fingerprint = fingerprint_is_new_;
    if (fingerprint_is_new_) chunk.fingerprint = fingerprint_;
    fingerprint_is_new_ = false;
  }
  last_write_ns_ = MonotonicNanoseconds();
  unpaired_.store(assembler_.unpaired(), std::memory_order_relaxed);
  chunk.last = last;
  if (chunk.empty()) return;
  if (!failed_ && !ended_) {
    // Calls first: their texts are older than they are.
    if (stacks_ != nullptr) calls_written_ = stacks_->CopyFrom(calls_written_, &chunk.calls);
    texts_written_ = texts_.CopyFrom(texts_written_, &chunk.texts);
    frame_.clear();
    AppendTraceFrame(chunk, &frame_);
    if (const Status written = file_.Append(frame_); !written.ok()) Fail(written.error());
  }
  chunk.StartNext();
}

void TraceWriterThread::Fail(const std::string& error) {
  failed_ = true;
  {
    const std::lock_guard lock(mutex_);
    write_error_ = error;
  }
  if (!running_) return;
  Log(LogSeverity::kError, "%s; recording stops here, what was written before stays valid", error.c_str());
}

void TraceWriterThread::Flush() noexcept {
  const std::uint64_t target = ring_.tail();
  std::uint64_t wanted = flush_wanted_.load(std::memory_order_relaxed);
  while (wanted < target && !flush_wanted_.compare_exchange_weak(wanted, target, std::memory_order_release)) {
  }
  while (true) {
    const std::uint32_t word = flush_word_.load(std::memory_order_acquire);
    if (flushed_.load(std::memory_order_acquire) >= target) return;
    ring_.WakeConsumer();
    FutexWait(flush_word_, word);
  }
}

void TraceWriterThread::UpdateFingerprint(const Fingerprint& fingerprint) {
  const std::lock_guard lock(mutex_);
  fingerprint_is_new_ = fingerprint_is_new_ || !(fingerprint == fingerprint_);
  fingerprint_ = fingerprint;
}

std::string TraceWriterThread::write_error() const {
  const std::lock_guard lock(mutex_);
  return write_error_;
}

}  // namespace stalloc
