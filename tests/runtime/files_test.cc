// Directories, atomic writes, JSON text.
#include "allocator/runtime/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "proto/model/json_writer.h"
#include "tests/base/test_files.h"

namespace stalloc {
namespace {

using ::testing::HasSubstr;

TEST(FilesTest, MakesAllMissingParents) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a/b//c/file.json";
  ASSERT_TRUE(MakeParentDirectories(path).ok());
  EXPECT_TRUE(std::filesystem::is_directory(directory.path() + "/a/b/c"));
  EXPECT_TRUE(MakeParentDirectories(path).ok());  // they are there already
}

TEST(FilesTest, AFileInThePlaceOfADirectoryIsNamed) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() + "/taken") << "x";
  const Status made = MakeParentDirectories(directory.path() + "/taken/log_output/file.json");
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error(), HasSubstr(directory.path() + "/taken: Not a directory"));
}

TEST(FilesTest, ADirectoryWhereNothingCanBeMadeIsNamed) {
  const Status made = MakeParentDirectories("/proc/stalloc-test/file.json");
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error(), HasSubstr("/proc/stalloc-test"));
}

TEST(FilesTest, AFailedWriteLeavesTheOldFileAndNothingElse) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/summary.json";
  std::filesystem::create_directory(path);  // rename cannot put a file here
  std::ofstream(path + "/inside") << "x";
  ASSERT_FALSE(WriteFileAtomically(path, "{}").ok());
  EXPECT_THAT(directory.Names(), ::testing::ElementsAre("summary.json/inside"));
  ASSERT_FALSE(WriteFileAtomically(directory.path() + "/missing/x.json", "{}").ok());
}

TEST(FilesTest, ReadersOfAFileThatIsRewrittenSeeWholeTexts) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/summary.json";
  const std::string first(100000, 'a');
  const std::string second(100000, 'b');
  ASSERT_TRUE(WriteFileAtomically(path, first).ok());
  std::thread writer([&] {
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(WriteFileAtomically(path, i % 2 == 0 ? second : first).ok());
  });
  for (int i = 0; i < 200; ++i) {
    const std::string text = ReadFile(path);
    ASSERT_TRUE(text == first || text == second) << "torn: " << text.size() << " bytes";
  }
  writer.join();
}

TEST(JsonWriterTest, WritesNestedObjectsAndEscapes) {
  JsonWriter json;
  json.BeginObject();
  json.Field("text", "a \"quoted\" \\ line\n\x01");
  json.Field("count", 12u);
  json.Field("device", -1);
  json.Field("flag", true);
  json.Field("ratio", 0.25);
  json.Field("lost", std::numeric_limits<double>::quiet_NaN());
  json.TextOrNull("why", "");
  json.BeginObject("empty");
  json.EndObject();
  json.BeginArray("list");
  json.BeginObject();
  json.Field("a", 1);
  json.EndObject();
  json.BeginObject();
  json.EndObject();
  json.EndArray();
  json.EndObject();
  EXPECT_EQ(json.text(),
            R"({"text": "a \"quoted\" \\ line\u000a\u0001", "count": 12, "device": -1, "flag": true, "ratio": 0.25, )"
            R"("lost": null, "why": null, "empty": {}, "list": [{"a": 1}, {}]})");
}

TEST(JsonWriterTest, BytesThatAreNoUtf8AreEscapedAndCharactersStay) {
  JsonWriter json;
  json.BeginObject();
  json.Field("characters", "\u00e9 \u20ac \U0001f600");
  json.Field("path", "/a\xff/\xc3(/\xed\xa0\x80/\xf0\x9f");  // alone, cut short, a surrogate, an end
  json.EndObject();
  EXPECT_EQ(json.text(),
            "{\"characters\": \"\u00e9 \u20ac \U0001f600\", "
            R"("path": "/a\udcff/\udcc3(/\udced\udca0\udc80/\udcf0\udc9f"})");
}

}  // namespace
}  // namespace stalloc
