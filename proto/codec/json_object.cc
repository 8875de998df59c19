#include "proto/codec/json_object.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stalloc {

using google::protobuf::Value;

absl::StatusOr<JsonObject> JsonObject::Parse(std::string_view text) {
  auto fields = std::make_shared<google::protobuf::Struct>();
  const auto parsed = google::protobuf::util::JsonStringToMessage(std::string(text), fields.get());
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("expected a JSON object, found: ", std::string(text.substr(0, 80))));
  }
  return JsonObject(std::move(fields));
}

const Value* JsonObject::Find(const std::string& key) {
  requested_.insert(key);
  const auto found = fields_->fields().find(key);
  return found == fields_->fields().end() || found->second.has_null_value() ? nullptr : &found->second;
}

void JsonObject::Refuse(const std::string& key, const char* expected) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(key, ": expected ", expected));
}

template <typename Take>
void JsonObject::ForEach(const std::string& key, const char* expected, const Take& take) {
  const Value* const list = Find(key);
  if (list == nullptr) return;
  if (!list->has_list_value()) return Refuse(key, expected);
  for (const Value& value : list->list_value().values()) {
    if (!take(value)) return Refuse(key, expected);
  }
}

double JsonObject::Number(const std::string& key, double absent) {
  const Value* const value = Find(key);
  if (value == nullptr) return absent;
  if (!value->has_number_value()) Refuse(key, "a number");
  return value->number_value();
}

std::string JsonObject::Text(const std::string& key, const std::string& absent) {
  const Value* const value = Find(key);
  if (value == nullptr) return absent;
  if (!value->has_string_value()) Refuse(key, "a text");
  return value->string_value();
}

bool JsonObject::Flag(const std::string& key) {
  const Value* const value = Find(key);
  if (value == nullptr) return false;
  if (!value->has_bool_value()) Refuse(key, "true or false");
  return value->bool_value();
}

std::vector<std::string> JsonObject::Texts(const std::string& key) {
  std::vector<std::string> found;
  ForEach(key, "a list of texts", [&](const Value& value) {
    found.push_back(value.string_value());
    return value.has_string_value();
  });
  return found;
}

std::vector<double> JsonObject::Numbers(const std::string& key) {
  std::vector<double> found;
  ForEach(key, "a list of numbers", [&](const Value& value) {
    found.push_back(value.number_value());
    return value.has_number_value();
  });
  return found;
}

std::vector<std::vector<double>> JsonObject::Lists(const std::string& key) {
  std::vector<std::vector<double>> found;
  ForEach(key, "a list of lists of numbers", [&](const Value& value) {
    std::vector<double>& numbers = found.emplace_back();
    for (const Value& each : value.list_value().values()) {
      if (!each.has_number_value()) return false;
      numbers.push_back(each.number_value());
    }
    return value.has_list_value();
  });
  return found;
}

JsonObject JsonObject::Object(const std::string& key) {
  const Value* const value = Find(key);
  if (value == nullptr) return JsonObject(std::make_shared<google::protobuf::Struct>());
  if (!value->has_struct_value()) Refuse(key, "an object");
  return JsonObject(std::shared_ptr<const google::protobuf::Struct>(fields_, &value->struct_value()));
}

std::vector<std::string> JsonObject::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : fields_->fields()) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

std::string JsonObject::Json(const std::string& key) {
  const Value* const value = Find(key);
  std::string text = "null";
  if (value != nullptr && !google::protobuf::util::MessageToJsonString(*value, &(text = "")).ok()) text = "?";
  return text;
}

std::vector<JsonObject> JsonObject::Objects(const std::string& key) {
  std::vector<JsonObject> found;
  ForEach(key, "a list of objects", [&](const Value& value) {
    found.push_back(JsonObject(std::shared_ptr<const google::protobuf::Struct>(fields_, &value.struct_value())));
    return value.has_struct_value();
  });
  return found;
}

absl::Status JsonObject::Finish() const {
  if (!status_.ok()) return status_;
  for (const auto& [key, value] : fields_->fields()) {
    if (!requested_.contains(key)) return absl::InvalidArgumentError(absl::StrCat("unknown key: ", key));
  }
  return absl::OkStatus();
}

}  // namespace stalloc
