// The planner's writer (protobuf) against the training process's reader (protozero).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "proto/codec/frame.h"
#include "proto/codec/plan_reader.h"
#include "proto/codec/plan_writer.h"
#include "proto/codec/trace_writer.h"
#include "proto/plan.pb.h"
#include "tests/base/test_files.h"
#include "tests/proto/random_formats.h"

namespace stalloc {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// A plan file around any payload, with the right length and checksum.
std::string Frame(const std::string& payload) {
  std::string bytes(kPlanMagic);
  const std::size_t start = BeginFrame(&bytes);
  bytes += payload;
  FinishFrame(start, &bytes);
  return bytes;
}

std::string Payload(const std::string& file) { return file.substr(kMagicBytes + kFrameHeaderBytes); }

std::string ErrorOf(std::string_view bytes) {
  const Result<Plan> plan = ParsePlan(bytes, "p.plan");
  return plan.ok() ? "no error" : plan.error();
}

TEST(PlanCodecTest, RandomPlansComeBackEqual) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Plan plan = RandomFormats(seed).MakePlan();
    const Result<Plan> read = ParsePlan(EncodePlan(plan), "p.plan");
    ASSERT_TRUE(read.ok()) << read.error();
    EXPECT_TRUE(read.value() == plan);
  }
}

TEST(PlanCodecTest, TruncationAtEveryByteIsAnErrorThatNamesTheFile) {
  const std::string bytes = EncodePlan(RandomFormats(1).MakePlan());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const std::string error = ErrorOf(std::string_view(bytes).substr(0, length));
    ASSERT_THAT(error, StartsWith("p.plan: ")) << length;
    ASSERT_THAT(error, HasSubstr(length == 0 ? "an empty file" : "truncated")) << length;
  }
}

TEST(PlanCodecTest, EveryFlippedBitIsReported) {
  std::string bytes = EncodePlan(RandomFormats(2).MakePlan());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const char mask = static_cast<char>(1 << (bit % 8));
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ mask);
    ASSERT_NE(ErrorOf(bytes), "no error") << "bit " << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ mask);
  }
  EXPECT_EQ(ErrorOf(bytes), "no error");
}

// With a right checksum around it, so that the message parser itself has to cope.
TEST(PlanCodecTest, DamagedMessagesNeverCrash) {
  std::mt19937_64 random(3);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::string payload = Payload(EncodePlan(RandomFormats(seed).MakePlan()));
    for (int damage = 0; damage < 300; ++damage) {
      std::string bad = payload;
      for (std::uint64_t hits = 1 + random() % 4; hits > 0; --hits)
        bad[random() % bad.size()] = static_cast<char>(random());
      if (random() % 4 == 0) bad.resize(1 + random() % bad.size());
      const Result<Plan> plan = ParsePlan(Frame(bad), "p.plan");
      if (plan.ok()) continue;  // the damage left a valid plan
      EXPECT_THAT(plan.error(), StartsWith("p.plan: "));
    }
  }
}

TEST(PlanCodecTest, OtherFilesAreCalledWhatTheyAre) {
  EXPECT_EQ(ErrorOf(EncodeTrace(RandomFormats(1).MakeTrace(5))),
            "p.plan: expected a stalloc plan, found a stalloc trace");
  EXPECT_THAT(ErrorOf("id,lower,upper,size\n"), HasSubstr("found a file that starts with the bytes 69 64 2c"));
  EXPECT_EQ(ErrorOf(""), "p.plan: expected a stalloc plan, found an empty file");
  EXPECT_THAT(ErrorOf(EncodePlan(RandomFormats(1).MakePlan()) + "x"), HasSubstr("1 bytes follow its end"));
}

TEST(PlanCodecTest, UnknownVersionSaysBothVersionsAndTheCure) {
  proto::Plan message;
  message.set_format_version(kPlanFormatVersion + 1);
  EXPECT_THAT(ErrorOf(Frame(message.SerializeAsString())),
              AllOf(StartsWith("p.plan: "), HasSubstr("format version 2"), HasSubstr("reads version 1"),
                    HasSubstr("make the plan again")));
}

// A newer planner of the same version may add fields; they are skipped on every level.
TEST(PlanCodecTest, UnknownFieldsAreSkipped) {
  const Plan plan = RandomFormats(4).MakePlan();
  proto::Plan message;
  ASSERT_TRUE(message.ParseFromString(Payload(EncodePlan(plan))));
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(100, 7);
  proto::DevicePlan* device = message.mutable_devices(0);
  device->GetReflection()->MutableUnknownFields(device)->AddLengthDelimited(100, "later");
  proto::Script* script = device->mutable_cycle(0);
  script->GetReflection()->MutableUnknownFields(script)->AddFixed64(100, 7);
  const Result<Plan> read = ParsePlan(Frame(message.SerializeAsString()), "p.plan");
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_TRUE(read.value() == plan);
}

TEST(PlanCodecTest, ColumnsOfUnequalLengthAndUnknownValuesAreRefused) {
  proto::Plan message;
  ASSERT_TRUE(message.ParseFromString(Payload(EncodePlan(RandomFormats(4).MakePlan()))));
  proto::Script* script = message.mutable_devices(0)->mutable_cycle(0);
  script->add_bytes(512);
  EXPECT_THAT(ErrorOf(Frame(message.SerializeAsString())), HasSubstr("malformed plan: column "));

  script->mutable_bytes()->RemoveLast();
  ASSERT_GT(script->entry_class_size(), 0);
  script->set_entry_class(0, static_cast<proto::EntryClass>(9));
  EXPECT_THAT(ErrorOf(Frame(message.SerializeAsString())), HasSubstr("unknown entry class 9"));
}

// A plan that lends nothing has no bytes of it.
TEST(PlanCodecTest, TheColumnOfLentSlotsIsThereWhereAnEntryHasOne) {
  Plan plan = RandomFormats(4).MakePlan();
  DevicePlan& device = plan.devices[0];
  device.lent_pools.clear();
  device.lent_slots.clear();
  for (std::vector<Script>* scripts : {&device.prologue, &device.cycle}) {
    for (Script& script : *scripts) {
      for (Entry& entry : script.entries) entry.lent_slot = kNoSlot;
    }
  }
  device.kept = {};
  proto::Plan message;
  ASSERT_TRUE(message.ParseFromString(Payload(EncodePlan(plan))));
  for (const proto::Script& script : message.devices(0).cycle()) EXPECT_EQ(script.lent_plus_one_size(), 0);
  EXPECT_EQ(message.devices(0).lent_pools_size() + message.devices(0).lent_slots_size(), 0);

  device.lent_pools = {
      {.number = 3, .requests = 2, .layout = 0xfedcba9876543210u, .bytes = 60 * kMiB, .first_pieces = {2}}};
  device.lent_slots = {{.offset = 512, .capacity = 1024}};
  ASSERT_GT(device.cycle[0].entries.size(), 1u);
  Entry& entry = device.cycle[0].entries[1];
  entry.slot = kNoSlot;
  entry.lent_slot = 0;
  entry.bytes = entry.min_bytes = entry.max_bytes = 1024;
  ASSERT_TRUE(message.ParseFromString(Payload(EncodePlan(plan))));
  const proto::DevicePlan& written = message.devices(0);
  EXPECT_EQ(written.cycle(0).lent_plus_one_size(), static_cast<int>(device.cycle[0].entries.size()));
  EXPECT_EQ(written.cycle(0).lent_plus_one(1), 1u);
  EXPECT_EQ(written.lent_pools(0).layout(), 0xfedcba9876543210u);
  ASSERT_EQ(written.lent_pools(0).first_pieces_size(), 1);
  EXPECT_EQ(written.lent_pools(0).first_pieces(0), 2u);
  EXPECT_EQ(written.lent_pools(0).own_size(), 0);
  const Result<Plan> read = ParsePlan(EncodePlan(plan), "p.plan");
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_TRUE(read.value() == plan);
}

// To protozero a fixed64 whose first byte is 7 looks like a packed column of the seven others. Found by plan_fuzz.
TEST(PlanCodecTest, AColumnOfAnotherWireTypeIsRefused) {
  Plan plan = RandomFormats(4).MakePlan();
  Entry entry;
  entry.bytes = entry.min_bytes = entry.max_bytes = kBlockAlignment;
  plan.devices[0].turns = 1;
  plan.devices[0].cycle[0].phases.clear();
  plan.devices[0].cycle[0].entries.assign(7, entry);
  ASSERT_EQ(ErrorOf(EncodePlan(plan)), "no error");
  proto::Plan message;
  ASSERT_TRUE(message.ParseFromString(Payload(EncodePlan(plan))));
  proto::Script* script = message.mutable_devices(0)->mutable_cycle(0);
  script->clear_expected_life();
  script->GetReflection()->MutableUnknownFields(script)->AddFixed64(proto::Script::kExpectedLifeFieldNumber,
                                                                    0x0706050403020107);
  EXPECT_THAT(ErrorOf(Frame(message.SerializeAsString())), HasSubstr("unexpected wire type"));
}

TEST(PlanCodecTest, PlanThatBreaksARuleIsRefusedByBothSides) {
  TemporaryDirectory directory;
  Plan plan = RandomFormats(4).MakePlan();
  plan.devices[0].slots[0].offset = 1;
  EXPECT_THAT(ErrorOf(EncodePlan(plan)), HasSubstr("slot 0: offset 1 is not a multiple of 512"));
  const absl::Status written = WritePlanFile(directory.File("bad.plan"), plan);
  EXPECT_THAT(std::string(written.message()), HasSubstr("slot 0: offset 1"));
  EXPECT_THAT(directory.Names(), ElementsAre());
}

TEST(PlanFileTest, WrittenPlanComesBackEqualAndAlone) {
  TemporaryDirectory directory;
  const Plan plan = RandomFormats(11).MakePlan();
  const std::string path = directory.File("rank00000.plan");
  ASSERT_TRUE(WritePlanFile(path, plan).ok());
  const Result<Plan> read = ReadPlan(path);
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_TRUE(read.value() == plan);
  EXPECT_THAT(directory.Names(), ElementsAre("rank00000.plan"));
}

TEST(PlanFileTest, MissingFileIsNamed) {
  const Result<Plan> plan = ReadPlan("/nonexistent/rank00000.plan");
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error(), "/nonexistent/rank00000.plan: cannot open the plan: No such file or directory");
}

// Nobody reads it first.
TEST(PlanFileTest, AFileLargerThanAnyPlanIsRefused) {
  const TemporaryDirectory directory;
  const std::string path = directory.File("rank00000.plan");
  std::ofstream(path) << kPlanMagic;
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);  // of holes
  EXPECT_THAT(ReadPlan(path).error(), AllOf(HasSubstr(path), HasSubstr("bytes at most, found 1099511627776")));
}

TEST(PlanFileTest, DirectoryInPlaceOfAFileIsAnError) {
  TemporaryDirectory directory;
  EXPECT_THAT(ReadPlan(directory.path()).error(), HasSubstr("cannot read the plan"));
}

TEST(PlanFileTest, WriterCreatesDirectoriesAndReplacesAnOldPlan) {
  TemporaryDirectory directory;
  const std::string path = directory.File("output/plan/rank00000.plan");
  ASSERT_TRUE(WritePlanFile(path, RandomFormats(1).MakePlan()).ok());
  const Plan second = RandomFormats(2).MakePlan();
  ASSERT_TRUE(WritePlanFile(path, second).ok());
  EXPECT_TRUE(ReadPlan(path).value() == second);
}

TEST(PlanFileTest, FileIsAsReadableAsTheUmaskAllows) {
  TemporaryDirectory directory;
  const mode_t before = umask(027);
  ASSERT_TRUE(WritePlanFile(directory.File("a.plan"), RandomFormats(1).MakePlan()).ok());
  umask(before);
  struct stat status {};
  ASSERT_EQ(stat(directory.File("a.plan").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST(PlanFileTest, ReadOnlyDirectoryIsAnErrorAndNothingIsLeftBehind) {
  TemporaryDirectory directory;
  ASSERT_EQ(chmod(directory.path().c_str(), 0555), 0);
  {
    const AsUnprivilegedUser user;
    const absl::Status written = WritePlanFile(directory.File("a.plan"), RandomFormats(1).MakePlan());
    EXPECT_TRUE(absl::IsPermissionDenied(written)) << written;
    EXPECT_THAT(std::string(written.message()), HasSubstr(directory.File("a.plan")));
  }
  ASSERT_EQ(chmod(directory.path().c_str(), 0755), 0);
  EXPECT_THAT(directory.Names(), ElementsAre());
}

TEST(PlanFileTest, FailedRenameRemovesTheTemporaryFile) {
  TemporaryDirectory directory;
  const std::string path = directory.File("occupied");
  std::filesystem::create_directories(path + "/by-a-directory");
  const absl::Status written = WritePlanFile(path, RandomFormats(1).MakePlan());
  EXPECT_THAT(std::string(written.message()), HasSubstr("cannot rename"));
  EXPECT_THAT(directory.Names(), ElementsAre("occupied/by-a-directory"));
}

}  // namespace
}  // namespace stalloc
