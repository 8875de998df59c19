// The training process's chunk writer (protozero) against the planner's reader (protobuf), and the other way round.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "proto/codec/frame.h"
#include "proto/codec/plan_writer.h"
#include "proto/codec/trace_chunk_writer.h"
#include "proto/codec/trace_reader.h"
#include "proto/codec/trace_writer.h"
#include "proto/trace.pb.h"
#include "tests/base/test_files.h"
#include "tests/proto/random_formats.h"

namespace stalloc {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class TraceCodecTest : public testing::Test {
 protected:
  absl::StatusOr<Trace> Read(std::string_view bytes) {
    WriteBytes(path_, bytes);
    return ReadTrace(path_);
  }
  std::string ErrorOf(std::string_view bytes) {
    const absl::StatusOr<Trace> trace = Read(bytes);
    return trace.ok() ? "no error" : std::string(trace.status().message());
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.File("t.trace");
};

void ExpectEqual(const Trace& read, const Trace& written) {
  EXPECT_EQ(read.fingerprint, written.fingerprint);
  EXPECT_EQ(read.events, written.events);
  EXPECT_EQ(read.marks, written.marks);
  EXPECT_EQ(read.streams, written.streams);
  EXPECT_EQ(read.texts, written.texts);
  EXPECT_EQ(read.tensors, written.tensors);
  EXPECT_EQ(read.calls, written.calls);
  EXPECT_EQ(read.layer_inputs, written.layer_inputs);
  EXPECT_EQ(read.live_before, written.live_before);
  EXPECT_EQ(read.allocations, written.allocations);
  EXPECT_EQ(read.complete, written.complete);
}

// `read` is what was written up to some event.
void ExpectPrefix(const Trace& read, const Trace& written) {
  ASSERT_LE(read.events.size(), written.events.size());
  EXPECT_TRUE(std::equal(read.events.begin(), read.events.end(), written.events.begin()));
  ASSERT_LE(read.marks.size(), written.marks.size());
  EXPECT_TRUE(std::equal(read.marks.begin(), read.marks.end(), written.marks.begin()));
}

void AppendFrame(const proto::TraceChunk& chunk, std::string* bytes) {
  const std::size_t start = BeginFrame(bytes);
  chunk.AppendToString(bytes);
  FinishFrame(start, bytes);
}

// Two allocations on one stream, the first freed: the smallest chunk with something to break.
proto::TraceChunk SmallChunk() {
  proto::TraceChunk chunk;
  chunk.set_format_version(kTraceFormatVersion);
  const std::uint32_t kinds[] = {proto::EVENT_ALLOC, proto::EVENT_ALLOC, proto::EVENT_FREE};
  for (const std::uint32_t kind : kinds) {
    chunk.add_kind(kind);
    chunk.add_subject(0);  // device 0, and allocation 0
    chunk.add_value(kind == proto::EVENT_ALLOC ? 512 : 0);
    chunk.add_stream(0);
    chunk.add_thread(0);
    chunk.add_time_delta_ns(10);
    chunk.add_flags(0);
  }
  chunk.add_streams()->set_handle(7);
  return chunk;
}

std::string FileOf(const std::vector<proto::TraceChunk>& chunks) {
  std::string bytes(kTraceMagic);
  for (const proto::TraceChunk& chunk : chunks) AppendFrame(chunk, &bytes);
  return bytes;
}

TEST_F(TraceCodecTest, RandomTracesComeBackEqualWhateverTheChunkSize) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomFormats random(seed);
    const Trace trace = random.MakeTrace(random.Below(2000));
    const TraceWriteOptions options{.chunk_events = 1 + random.Below(500)};
    const absl::StatusOr<Trace> read = Read(EncodeTrace(trace, options));
    ASSERT_TRUE(read.ok()) << read.status();
    ExpectEqual(*read, trace);
    EXPECT_EQ(read->truncation, "");
  }
}

TEST_F(TraceCodecTest, UsesComeWithTheirChunk) {
  Trace trace = RandomFormats(3).MakeTrace(200);
  trace.texts = {"mul", "sum"};
  trace.tensors.clear();
  trace.layer_inputs.clear();
  trace.calls.clear();
  for (TraceEvent& event : trace.events) event.stack_plus_one = 0;
  ASSERT_GT(trace.allocations, 2u);
  const std::vector<BlockUse> uses = {{2, 200, 1}, {0, 7, 0}, {1, 200, 1}};  // in any order
  const std::string path = directory_.File("uses");
  ASSERT_TRUE(WriteTraceFile(path, trace, {.chunk_events = 64, .uses = uses}).ok());
  const auto reader = TraceReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<std::vector<BlockUse>> chunks;
  Trace read;
  while (*(*reader)->ReadChunk(&read)) chunks.push_back((*reader)->uses());
  ASSERT_EQ(chunks.size(), 4u);
  EXPECT_TRUE(chunks[0].empty() && chunks[1].empty() && chunks[2].empty());
  EXPECT_EQ(chunks[3], uses);
  EXPECT_EQ(read.events, trace.events);
}

// Every field, as protobuf's own reading of what protozero wrote.
TEST_F(TraceCodecTest, ChunkWriterSpeaksTheSchema) {
  TraceChunk chunk;
  chunk.first_event = 12;
  chunk.has_fingerprint = true;
  chunk.fingerprint = RandomFormats(5).MakeFingerprint();
  chunk.fingerprint.command_line = {"a", "", "b"};
  chunk.AppendRow(EventKind::kAlloc, DeviceSubject(-1), 1u << 30, 3, 4, -5, kAllocCaptured);
  chunk.AppendRow(EventKind::kHeld, DeviceSubject(7), ~std::uint64_t{0}, 0, 0, 1'000'000'000'000, 0);
  chunk.marks.push_back(RandomFormats(6).MakeMark());
  chunk.marks[0].chunk = -2;
  chunk.streams.push_back({.ordinal = 9, .device = -1, .handle = 0xdeadbeefcafe});
  chunk.uses = {{5, 9, 3}, {1, 7, 2}};
  chunk.layer_inputs = {{4, 8, 6}};
  chunk.time_origin_ns = 123456789012345;
  chunk.last = true;
  std::string bytes;
  AppendTraceFrame(chunk, &bytes);

  proto::TraceChunk message;
  ASSERT_TRUE(message.ParseFromString(bytes.substr(kFrameHeaderBytes)));
  EXPECT_TRUE(message.GetReflection()->GetUnknownFields(message).empty());
  EXPECT_EQ(message.format_version(), kTraceFormatVersion);
  EXPECT_EQ(message.first_event(), 12u);
  EXPECT_EQ(message.fingerprint().world_size(), chunk.fingerprint.world_size);
  EXPECT_THAT(message.fingerprint().command_line(), ElementsAre("a", "", "b"));
  EXPECT_THAT(message.kind(), ElementsAre(proto::EVENT_ALLOC, proto::EVENT_HELD));
  EXPECT_THAT(message.subject(), ElementsAre(1, 14));  // zigzag of -1 and 7
  EXPECT_THAT(message.value(), ElementsAre(1u << 30, ~std::uint64_t{0}));
  EXPECT_THAT(message.stream(), ElementsAre(3, 0));
  EXPECT_THAT(message.thread(), ElementsAre(4, 0));
  EXPECT_THAT(message.time_delta_ns(), ElementsAre(-5, 1'000'000'000'000));
  EXPECT_THAT(message.flags(), ElementsAre(proto::ALLOC_CAPTURED, 0));
  EXPECT_THAT(message.uses().allocation(), ElementsAre(5, 1));
  EXPECT_THAT(message.uses().event_delta(), ElementsAre(9, -2));
  EXPECT_THAT(message.uses().operation(), ElementsAre(3, 2));
  EXPECT_THAT(message.layer_inputs().allocation(), ElementsAre(4));
  EXPECT_THAT(message.layer_inputs().event_delta(), ElementsAre(8));
  EXPECT_THAT(message.layer_inputs().operation(), ElementsAre(6));
  EXPECT_EQ(message.marks(0).chunk(), -2);
  EXPECT_EQ(message.marks(0).index(), chunk.marks[0].index);
  EXPECT_EQ(message.streams(0).ordinal(), 9u);
  EXPECT_EQ(message.streams(0).device(), -1);
  EXPECT_EQ(message.streams(0).handle(), 0xdeadbeefcafeu);
  EXPECT_EQ(message.time_origin_ns(), 123456789012345u);
  EXPECT_TRUE(message.last());
}

// Values by allocation, as the distance to the one before; what is not captured has none.
TEST_F(TraceCodecTest, AddressesOfCapturedAllocationsAreAColumnOfTheirOwn) {
  TraceChunk chunk;
  const auto append = [&](EventKind kind, std::uint32_t flags, std::uint64_t address) {
    chunk.AppendRow(kind, 0, 512, 0, 0, 0, flags);
    chunk.SetAddress(address);
  };
  append(EventKind::kAlloc, kAllocCaptured, 0x7f0000000400);
  append(EventKind::kAlloc, kAllocParallel, 0x1000);
  append(EventKind::kAlloc, kAllocCaptured | 3u << kAllocPoolShift, 0x7f0000000000);
  std::string bytes;
  AppendTraceFrame(chunk, &bytes);
  proto::TraceChunk message;
  ASSERT_TRUE(message.ParseFromString(bytes.substr(kFrameHeaderBytes)));
  EXPECT_THAT(message.captured_address_delta(), ElementsAre(0x7f0000000400, -0x400));

  chunk.StartNext();
  append(EventKind::kAlloc, kAllocCaptured, 0);
  bytes.clear();
  AppendTraceFrame(chunk, &bytes);
  ASSERT_TRUE(message.ParseFromString(bytes.substr(kFrameHeaderBytes)));
  EXPECT_EQ(message.captured_address_delta_size(), 0) << "none is known";
}

// As of a recorder that does not tell addresses.
TEST_F(TraceCodecTest, ATraceWithoutAddressesIsRead) {
  proto::TraceChunk chunk = SmallChunk();
  chunk.set_flags(0, proto::ALLOC_CAPTURED);
  const absl::StatusOr<Trace> trace = Read(FileOf({chunk}));
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->events[0].flags, kAllocCaptured);
  EXPECT_EQ(trace->events[0].address, 0u);
}

// What protobuf writes (another recorder, another language), the reader takes.
TEST_F(TraceCodecTest, ReaderTakesChunksThatProtobufWrote) {
  proto::TraceChunk chunk = SmallChunk();
  chunk.set_last(true);
  const absl::StatusOr<Trace> trace = Read(FileOf({chunk}));
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_TRUE(trace->complete) << trace->truncation;
  ASSERT_EQ(trace->events.size(), 3u);
  EXPECT_EQ(trace->allocations, 2u);
  EXPECT_EQ(trace->events[1].allocation, 1u);
  EXPECT_EQ(trace->events[1].time_ns, 20);
  EXPECT_EQ(trace->events[2].kind, EventKind::kFree);
  EXPECT_EQ(trace->events[2].allocation, 0u);
  EXPECT_EQ(trace->streams, (std::vector<StreamInfo>{{.ordinal = 0, .device = 0, .handle = 7}}));
}

// Two of them are further apart than their type holds.
TEST_F(TraceCodecTest, AnyTimesComeBackEqual) {
  Trace trace = RandomFormats(5).MakeTrace(3);
  trace.events[0].time_ns = std::numeric_limits<std::int64_t>::max();
  trace.events[1].time_ns = std::numeric_limits<std::int64_t>::min();
  trace.events[2].time_ns = std::numeric_limits<std::int64_t>::max();
  const absl::StatusOr<Trace> read = Read(EncodeTrace(trace));
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectEqual(*read, trace);
}

TEST_F(TraceCodecTest, TruncationAtEveryByteYieldsTheValidPrefix) {
  const Trace trace = RandomFormats(7).MakeTrace(60);
  const std::string bytes = EncodeTrace(trace, {.chunk_events = 9});
  std::size_t previous = 0;
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    SCOPED_TRACE(testing::Message() << length << " of " << bytes.size() << " bytes");
    const absl::StatusOr<Trace> read = Read(std::string_view(bytes).substr(0, length));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_FALSE(read->complete);
    EXPECT_THAT(read->truncation, AllOf(StartsWith(path_ + " ends "), HasSubstr("events before that are valid")));
    ExpectPrefix(*read, trace);
    EXPECT_GE(read->events.size(), previous);
    previous = read->events.size();
  }
  EXPECT_GE(previous, 54u);  // all chunks but the last
}

TEST_F(TraceCodecTest, EveryFlippedBitIsReportedAndWhatIsReadIsAPrefix) {
  const Trace trace = RandomFormats(8).MakeTrace(30);
  std::string bytes = EncodeTrace(trace, {.chunk_events = 7});
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const char mask = static_cast<char>(1 << (bit % 8));
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ mask);
    const absl::StatusOr<Trace> read = Read(bytes);
    if (read.ok()) {
      ASSERT_FALSE(read->complete) << "bit " << bit;
      ASSERT_NE(read->truncation, "") << "bit " << bit;
      ExpectPrefix(*read, trace);
    } else {
      ASSERT_THAT(std::string(read.status().message()), StartsWith(path_ + ": ")) << "bit " << bit;
    }
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ mask);
  }
}

// With right checksums around them, so that parser and row checks have to cope.
TEST_F(TraceCodecTest, DamagedMessagesNeverCrash) {
  std::mt19937_64 random(9);
  std::string payload;
  SmallChunk().SerializeToString(&payload);
  for (int damage = 0; damage < 3000; ++damage) {
    std::string bad = payload;
    for (std::uint64_t hits = 1 + random() % 3; hits > 0; --hits)
      bad[random() % bad.size()] = static_cast<char>(random());
    std::string bytes(kTraceMagic);
    const std::size_t start = BeginFrame(&bytes);
    bytes += bad;
    FinishFrame(start, &bytes);
    const absl::StatusOr<Trace> read = Read(bytes);
    if (!read.ok()) continue;
    EXPECT_LE(read->events.size(), payload.size());
  }
}

TEST_F(TraceCodecTest, ZerosAtTheEndAreATornTailAndNotChunks) {
  Trace trace = RandomFormats(1).MakeTrace(20);
  trace.complete = false;
  const absl::StatusOr<Trace> read = Read(EncodeTrace(trace) + std::string(4096, '\0'));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->events, trace.events);
  EXPECT_FALSE(read->complete);
  EXPECT_THAT(read->truncation, HasSubstr("impossible frame length 0"));
}

TEST_F(TraceCodecTest, BytesAfterTheLastChunkAreReported) {
  const Trace trace = RandomFormats(1).MakeTrace(20);
  const absl::StatusOr<Trace> read = Read(EncodeTrace(trace) + "more");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->events, trace.events);
  EXPECT_THAT(read->truncation, HasSubstr("has bytes after its last chunk"));
}

TEST_F(TraceCodecTest, OtherFilesAreCalledWhatTheyAre) {
  EXPECT_EQ(ErrorOf(EncodePlan(RandomFormats(1).MakePlan())),
            path_ + ": expected a stalloc trace, found a stalloc plan");
  EXPECT_THAT(ErrorOf("#!/bin/sh\n"), HasSubstr("found a file that starts with the bytes 23 21"));
  EXPECT_THAT(std::string(ReadTrace(directory_.path()).status().message()), HasSubstr("no regular file"));
  const absl::Status missing = ReadTrace("/nonexistent/rank00000.trace").status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(std::string(missing.message()), StartsWith("/nonexistent/rank00000.trace: cannot open the trace"));
}

TEST_F(TraceCodecTest, UnknownVersionIsAnErrorAtTheHeadAndEndsThePrefixLater) {
  proto::TraceChunk first = SmallChunk();
  proto::TraceChunk newer = SmallChunk();
  newer.set_format_version(kTraceFormatVersion + 41);
  EXPECT_EQ(ErrorOf(FileOf({newer})), path_ + ": trace of format version 42; this program reads version 1");
  const absl::StatusOr<Trace> read = Read(FileOf({first, newer}));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->events.size(), 3u);
  EXPECT_THAT(read->truncation, HasSubstr("chunk 1: format version 42"));
}

void AddCall(proto::TraceChunk* chunk, std::uint32_t parent_plus_one) {
  chunk->mutable_calls()->add_parent_plus_one(parent_plus_one);
  chunk->mutable_calls()->add_function(3);
  chunk->mutable_calls()->add_file(3);
  chunk->mutable_calls()->add_line(1);
}

void AddTensor(proto::TraceChunk* chunk, std::uint64_t allocation, std::uint32_t role) {
  chunk->mutable_tensors()->add_allocation(allocation);
  chunk->mutable_tensors()->add_role(role);
  chunk->mutable_tensors()->add_name(5);
  chunk->mutable_tensors()->add_offset(0);
  chunk->mutable_tensors()->add_bytes(8);
}

void AddUse(proto::TraceChunk* chunk, std::uint64_t allocation, std::int64_t event, std::uint32_t operation) {
  chunk->mutable_uses()->add_allocation(allocation);
  chunk->mutable_uses()->add_event_delta(event);
  chunk->mutable_uses()->add_operation(operation);
}

struct Damage {
  const char* name;
  void (*apply)(proto::TraceChunk*);
  const char* expected;
};

// Each rule at the head, where it is an error, and after a good chunk, where it ends the prefix and leaves no trace in
// it.
TEST_F(TraceCodecTest, EveryBrokenRowRuleIsNamed) {
  const Damage damages[] = {
      {"first event", [](proto::TraceChunk* c) { c->set_first_event(99); }, "expected first event"},
      {"columns", [](proto::TraceChunk* c) { c->add_value(1); }, "column value: expected 3 values, found 4"},
      {"kind", [](proto::TraceChunk* c) { c->set_kind(2, 6); }, "row 2: unknown event kind 6"},
      {"unset kind", [](proto::TraceChunk* c) { c->set_kind(2, 0); }, "row 2: unknown event kind 0"},
      {"allocation", [](proto::TraceChunk* c) { c->set_subject(2, 50); }, "row 2: allocation 50 of "},
      {"mark", [](proto::TraceChunk* c) { c->set_kind(2, proto::EVENT_MARK); }, "of 0 so far"},
      {"stream", [](proto::TraceChunk* c) { c->set_stream(1, 5); }, "row 1: stream ordinal 5 of "},
      {"device", [](proto::TraceChunk* c) { c->set_subject(1, 3); }, "row 1: impossible device -2"},
      {"huge device", [](proto::TraceChunk* c) { c->set_subject(1, 1ull << 40); }, "row 1: impossible device"},
      {"twice", [](proto::TraceChunk* c) { c->set_kind(1, proto::EVENT_FREE); }, "is freed twice"},
      {"stream order", [](proto::TraceChunk* c) { c->mutable_streams(0)->set_ordinal(8); }, "expected stream ordinal"},
      {"stack column", [](proto::TraceChunk* c) { c->add_stack_plus_one(0); },
       "column stack: expected 3 values or none"},
      {"address column", [](proto::TraceChunk* c) { c->add_captured_address_delta(512); },
       "column captured address: expected 0 values, one for each captured allocation, or none, found 1"},
      {"too few addresses",
       [](proto::TraceChunk* c) {
         for (const int row : {0, 1}) c->set_flags(row, proto::ALLOC_CAPTURED);
         c->add_captured_address_delta(512);
       },
       "column captured address: expected 2 values"},
      {"stack",
       [](proto::TraceChunk* c) {
         for (const std::uint32_t stack : {0, 1, 0}) c->add_stack_plus_one(stack);
       },
       "row 1: call 0 of 0 so far"},
      {"parent", [](proto::TraceChunk* c) { AddCall(c, 1); }, "call 0: parent 0 does not stand before it"},
      {"call columns",
       [](proto::TraceChunk* c) {
         c->mutable_calls()->add_line(1);
         c->mutable_calls()->add_parent_plus_one(0);
       },
       "calls: expected columns of 1 values"},
      {"call text", [](proto::TraceChunk* c) { AddCall(c, 0); }, "call 0: expected texts below 0, found 3 and 3"},
      {"use columns", [](proto::TraceChunk* c) { c->mutable_uses()->add_allocation(0); },
       "uses: expected columns of 1"},
      {"use of nothing", [](proto::TraceChunk* c) { AddUse(c, 99, 1, 0); }, "use 0: allocation 99 of "},
      {"use in the future", [](proto::TraceChunk* c) { AddUse(c, 0, 7, 0); }, "use 0: event 7 of "},
      {"use by nobody", [](proto::TraceChunk* c) { AddUse(c, 0, 1, 0); }, "use 0: text 0 of 0 so far"},
      {"input of nothing", [](proto::TraceChunk* c) { c->mutable_layer_inputs()->add_allocation(0); },
       "layer inputs: uses: expected columns of 1"},
      {"tensor columns", [](proto::TraceChunk* c) { c->mutable_tensors()->add_allocation(0); },
       "expected columns of 1"},
      {"tensor of nothing", [](proto::TraceChunk* c) { AddTensor(c, 99, 1); }, "named tensor 0: allocation 99 of "},
      {"tensor without name", [](proto::TraceChunk* c) { AddTensor(c, 0, 1); }, "named tensor 0: text 5 of 0 so far"},
      {"tensor role",
       [](proto::TraceChunk* c) {
         for (int i = 0; i < 6; ++i) c->add_texts("up");
         AddTensor(c, 0, 6);
       },
       "named tensor 0: unknown role 6"},
      {"mark kind", [](proto::TraceChunk* c) { c->add_marks()->set_edge(proto::EDGE_BEGIN); }, "unknown mark kind 0"},
  };
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.name);
    proto::TraceChunk head = SmallChunk();
    damage.apply(&head);
    EXPECT_THAT(ErrorOf(FileOf({head})), AllOf(HasSubstr("corrupt trace: chunk 0"), HasSubstr(damage.expected)));

    proto::TraceChunk tail = SmallChunk();
    tail.set_first_event(3);
    tail.set_subject(2, 2);
    tail.mutable_streams(0)->set_ordinal(1);
    damage.apply(&tail);
    if (std::string_view(damage.name) == "twice") {  // both frees of the allocation that lives since the first chunk
      tail.set_subject(1, 1);
      tail.set_subject(2, 1);
    }
    const absl::StatusOr<Trace> read = Read(FileOf({SmallChunk(), tail}));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->events.size(), 3u);
    EXPECT_EQ(read->streams.size(), 1u);
    EXPECT_TRUE(read->tensors.empty());
    EXPECT_EQ(read->allocations, 2u);
    EXPECT_THAT(read->truncation, AllOf(HasSubstr("is corrupt from byte"), HasSubstr(damage.expected)));
  }
}

TEST_F(TraceCodecTest, StringsThatAreNoUtf8DoNotCostTheChunk) {
  Trace trace = RandomFormats(1).MakeTrace(3);
  trace.fingerprint.command_line = {"caf\xe9",  "ok",           "\xff\xfe",        "cut \xe5\xb1",
                                    "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80"};
  const absl::StatusOr<Trace> read = Read(EncodeTrace(trace));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->fingerprint.command_line, ElementsAre("caf?", "ok", "??", "cut ??", "??", "???", "????"));
  EXPECT_EQ(ValidUtf8("größe 層 \xf0\x9f\x98\x80"), "größe 層 \xf0\x9f\x98\x80");
}

TEST_F(TraceCodecTest, LaterFingerprintReplacesTheFirst) {
  proto::TraceChunk first = SmallChunk();
  first.mutable_fingerprint()->set_torch_version("2.11");
  proto::TraceChunk second;
  second.set_format_version(kTraceFormatVersion);
  second.set_first_event(3);
  second.mutable_fingerprint()->set_device_name("NVIDIA H200");
  const absl::StatusOr<Trace> read = Read(FileOf({first, second}));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->fingerprint.device_name, "NVIDIA H200");
  EXPECT_EQ(read->fingerprint.torch_version, "");
}

TEST_F(TraceCodecTest, ChunkwiseReadingNeedsNoOldEventsAndReportsProgress) {
  const Trace trace = RandomFormats(3).MakeTrace(1000);
  WriteBytes(path_, EncodeTrace(trace, {.chunk_events = 64}));
  auto reader = TraceReader::Open(path_);
  ASSERT_TRUE(reader.ok());
  Trace chunk;
  std::vector<TraceEvent> events;
  while (true) {
    const absl::StatusOr<bool> more = (*reader)->ReadChunk(&chunk);
    ASSERT_TRUE(more.ok()) << more.status();
    if (!*more) break;
    EXPECT_LE(chunk.events.size(), 64u);
    events.insert(events.end(), chunk.events.begin(), chunk.events.end());
    chunk.events.clear();
  }
  EXPECT_EQ(events, trace.events);
  EXPECT_TRUE(chunk.complete);

  std::vector<std::uint64_t> steps;
  ASSERT_TRUE(ReadTrace(path_, [&](std::uint64_t read, std::uint64_t total) {
                steps.push_back(read);
                EXPECT_EQ(total, std::filesystem::file_size(path_));
              }).ok());
  EXPECT_GT(steps.size(), 10u);
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  EXPECT_EQ(steps.back(), std::filesystem::file_size(path_));
}

TEST_F(TraceCodecTest, WriterToolReplacesTheFileWhole) {
  const Trace trace = RandomFormats(3).MakeTrace(50);
  const std::string path = directory_.File("new/rank00003.trace");
  ASSERT_TRUE(WriteTraceFile(path, trace).ok());
  const absl::StatusOr<Trace> read = ReadTrace(path);
  ASSERT_TRUE(read.ok());
  ExpectEqual(*read, trace);
}

}  // namespace
}  // namespace stalloc
