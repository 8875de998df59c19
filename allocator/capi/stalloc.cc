// The part of stalloc.h that both libraries have: session, marks, statistics, errors.
#include "allocator/capi/stalloc.h"

#include <cstring>

#include "allocator/capi/global_session.h"
#include "allocator/capi/guarded.h"

namespace {

using stalloc::GlobalSession;
using stalloc::Guarded;

stalloc::Status CheckRange(const char* function, const char* what, int value, int least, int most) {
  if (value >= least && value <= most) return stalloc::Ok{};
  return stalloc::Error{std::string(function)
                            .append(": ")
                            .append(what)
                            .append(" must be from ")
                            .append(std::to_string(least))
                            .append(" to ")
                            .append(std::to_string(most))
                            .append("; found ")
                            .append(std::to_string(value))};
}

stalloc::Status CheckMark(int kind, int edge, int pass) {
  using stalloc::MarkEdge, stalloc::MarkKind, stalloc::Pass;
  stalloc::Status status =
      CheckRange("stalloc_mark", "kind", kind, static_cast<int>(MarkKind::kInit), static_cast<int>(MarkKind::kFence));
  if (status.ok()) {
    status =
        CheckRange("stalloc_mark", "edge", edge, static_cast<int>(MarkEdge::kBegin), static_cast<int>(MarkEdge::kEnd));
  }
  if (status.ok())
    status = CheckRange("stalloc_mark", "pass", pass, static_cast<int>(Pass::kNone), static_cast<int>(Pass::kOther));
  return status;
}

// The session's JSON, and a NUL, if it fits; the length that it needs without the NUL.
std::size_t WriteJson(char* buffer, std::size_t capacity, std::string (stalloc::Session::*written)() const) {
  std::size_t needed = 0;
  (void)Guarded([&]() -> stalloc::Status {
    const stalloc::Session* const session = GlobalSession();
    const std::string json = session == nullptr ? "{}" : (session->*written)();
    needed = json.size();
    if (buffer != nullptr && capacity > needed) std::memcpy(buffer, json.c_str(), needed + 1);
    return stalloc::Ok{};
  });
  return needed;
}

}  // namespace

extern "C" {

int stalloc_abi_version(void) { return STALLOC_ABI_VERSION; }

const char* stalloc_version(void) { return stalloc::LibraryVersion(); }

const char* stalloc_last_error(void) { return stalloc::LastError(); }

int stalloc_init(void) {
  return Guarded([]() -> stalloc::Status {
    const stalloc::Result<stalloc::Session*> session = stalloc::OpenGlobalSession({});
    if (!session.ok()) return stalloc::Error{session.error()};
    return stalloc::Ok{};
  });
}

void stalloc_mark(int kind, int edge, int pass, int chunk, int index, const char* name, int automatic) {
  stalloc::Session* const session = GlobalSession();
  if (session == nullptr) return;
  (void)Guarded([&]() -> stalloc::Status {
    if (stalloc::Status valid = CheckMark(kind, edge, pass); !valid.ok()) return valid;
    session->Mark({.kind = static_cast<stalloc::MarkKind>(kind),
                   .edge = static_cast<stalloc::MarkEdge>(edge),
                   .pass = static_cast<stalloc::Pass>(pass),
                   .chunk = chunk,
                   .index = index,
                   .name = name == nullptr ? "" : name,
                   .automatic = automatic != 0});
    return stalloc::Ok{};
  });
}

size_t stalloc_stats_json(char* buffer, size_t capacity) {
  return WriteJson(buffer, capacity, &stalloc::Session::StatsJson);
}

size_t stalloc_signature_json(char* buffer, size_t capacity) {
  return WriteJson(buffer, capacity, &stalloc::Session::SignatureJson);
}

void stalloc_silence(void) { stalloc::SetLogLevel(stalloc::LogSeverity::kOff); }

int stalloc_stop_trace(void) {
  stalloc::Session* const session = GlobalSession();
  if (session == nullptr) return 0;
  return Guarded([&]() -> stalloc::Status {
    session->StopTrace();
    return session->WriteSummary();
  });
}

int stalloc_start_trace(void) {
  stalloc::Session* const session = GlobalSession();
  if (session == nullptr) return 0;
  return Guarded([&]() -> stalloc::Status {
    session->StartTrace();
    return stalloc::Ok{};
  });
}

int stalloc_take_plan(const char* path) {
  return Guarded([&]() -> stalloc::Status {
    stalloc::Session* const session = GlobalSession();
    if (session == nullptr || path == nullptr) return stalloc::Error{"stalloc_take_plan: no session, or no path"};
    return session->TakePlan(path);
  });
}

int stalloc_prepare_plan(const char* path) {
  return Guarded([&]() -> stalloc::Status {
    stalloc::Session* const session = GlobalSession();
    if (session == nullptr || path == nullptr) return stalloc::Error{"stalloc_prepare_plan: no session, or no path"};
    return session->PreparePlan(path);
  });
}

int stalloc_trace_again(const char* path) {
  return Guarded([&]() -> stalloc::Status {
    stalloc::Session* const session = GlobalSession();
    if (session == nullptr || path == nullptr) return stalloc::Error{"stalloc_trace_again: no session, or no path"};
    return session->TraceAgain(path);
  });
}

void stalloc_drop_plan(void) {
  if (stalloc::Session* const session = GlobalSession(); session != nullptr) session->DropPlan();
}

void stalloc_move_run(const char* directory) {
  stalloc::Session* const session = GlobalSession();
  if (session == nullptr || directory == nullptr) return;
  (void)Guarded([&]() -> stalloc::Status {
    session->MoveTo(directory);
    return stalloc::Ok{};
  });
}

int64_t stalloc_text(const char* text) {
  stalloc::Session* const session = GlobalSession();
  std::int64_t number = -1;
  if (session == nullptr || text == nullptr) return number;
  (void)Guarded([&]() -> stalloc::Status {
    number = session->Text(text);
    return stalloc::Ok{};
  });
  return number;
}

void stalloc_name_tensor(const void* block, uint64_t offset, uint64_t bytes, int role, int64_t text) {
  stalloc::Session* const session = GlobalSession();
  if (session == nullptr || text < 0) return;
  (void)Guarded([&]() -> stalloc::Status {
    stalloc::Status valid =
        CheckRange("stalloc_name_tensor", "role", role, static_cast<int>(stalloc::TensorRole::kParameter),
                   static_cast<int>(stalloc::TensorRole::kInput));
    if (!valid.ok()) return valid;
    session->Name(block, {.offset = offset,
                          .bytes = bytes,
                          .role = static_cast<stalloc::TensorRole>(role),
                          .name = static_cast<std::uint32_t>(text)});
    return stalloc::Ok{};
  });
}

void stalloc_layer_input(const void* block, int64_t text) {
  stalloc::Session* const session = GlobalSession();
  if (session == nullptr || text < 0) return;
  session->Use(block, stalloc::UseKind::kLayerInput, 0, static_cast<std::uint32_t>(text));
}

void stalloc_tell_oom_reports(void (*listener)(const char* path)) {
  if (stalloc::Session* const session = GlobalSession(); session != nullptr) session->ListenToOomReports(listener);
}

int stalloc_flush(void) {
  stalloc::Session* const session = GlobalSession();
  if (session == nullptr) return 0;
  return Guarded([&]() -> stalloc::Status {
    session->Flush();
    return session->WriteSummary();
  });
}

}  // extern "C"
