// A recorder on a file of its own, and what tests ask of the trace that comes out.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "allocator/record/recorder.h"
#include "proto/codec/trace_reader.h"
#include "tests/base/test_files.h"

namespace stalloc {

// An address that nothing dereferences.
inline const void* At(std::uint64_t address) { return reinterpret_cast<const void*>(address); }

inline Mark MakeMark(MarkKind kind, MarkEdge edge, std::int32_t index = 0, std::string name = {}) {
  Mark mark;
  mark.kind = kind;
  mark.edge = edge;
  mark.index = index;
  mark.name = std::move(name);
  return mark;
}

class RecorderFixture : public testing::Test {
 protected:
  void Open(std::uint32_t ring_events = 1024, std::uint32_t chunk_events = 128) {
    Result<std::unique_ptr<Recorder>> opened = Recorder::Open(Options(ring_events, chunk_events));
    ASSERT_TRUE(opened.ok()) << opened.error();
    recorder_ = std::move(opened).value();
  }

  RecorderOptions Options(std::uint32_t ring_events = 1024, std::uint32_t chunk_events = 128) const {
    RecorderOptions options;
    options.path = path_;
    options.fingerprint.torch_version = "2.11.0";
    options.fingerprint.rank = 3;
    options.ring_events = ring_events;
    options.chunk_events = chunk_events;
    return options;
  }

  [[nodiscard]] Trace ReadBack() const {
    absl::StatusOr<Trace> trace = ReadTrace(path_);
    EXPECT_TRUE(trace.ok()) << trace.status();
    return trace.ok() ? *std::move(trace) : Trace{};
  }

  [[nodiscard]] Trace CloseAndRead() {
    recorder_.reset();
    return ReadBack();
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.File("trace/rank00003.trace");
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace stalloc
