// One JSON object that was read from a line of text: its values, each requested by key and type. The first wrong type,
// and a key that nobody requested, are the object's error. Not thread-safe.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace google::protobuf {
class Struct;
class Value;
}  // namespace google::protobuf

namespace stalloc {

class JsonObject {
 public:
  // InvalidArgument: the text is no JSON object.
  [[nodiscard]] static absl::StatusOr<JsonObject> Parse(std::string_view text);

  // The value of the key; `absent` where there is none. Whole numbers are exact up to 2^53.
  [[nodiscard]] double Number(const std::string& key, double absent);
  [[nodiscard]] std::string Text(const std::string& key, const std::string& absent = "");
  [[nodiscard]] bool Flag(const std::string& key);
  [[nodiscard]] std::vector<std::string> Texts(const std::string& key);
  [[nodiscard]] std::vector<double> Numbers(const std::string& key);
  [[nodiscard]] std::vector<std::vector<double>> Lists(const std::string& key);
  [[nodiscard]] std::vector<JsonObject> Objects(const std::string& key);
  [[nodiscard]] JsonObject Object(const std::string& key);  // empty where there is none

  [[nodiscard]] bool Has(const std::string& key) { return Find(key) != nullptr; }
  [[nodiscard]] std::vector<std::string> Keys() const;                  // ascending
  [[nodiscard]] std::string Json(const std::string& key);               // "null" where there is none
  [[nodiscard]] const absl::Status& status() const { return status_; }  // of the values that were requested
  // Call it last: InvalidArgument names the key and what was expected.
  [[nodiscard]] absl::Status Finish() const;

 private:
  explicit JsonObject(std::shared_ptr<const google::protobuf::Struct> fields) : fields_(std::move(fields)) {}
  // Null where the key is absent.
  const google::protobuf::Value* Find(const std::string& key);
  void Refuse(const std::string& key, const char* expected);
  template <typename Take>
  void ForEach(const std::string& key, const char* expected, const Take& take);

  std::shared_ptr<const google::protobuf::Struct> fields_;
  std::set<std::string> requested_;
  absl::Status status_;
};

}  // namespace stalloc
