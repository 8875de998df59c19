#include "planner/packing/problem/csv.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace stalloc::planner {
namespace {

enum Column : std::size_t { kId, kLower, kUpper, kSize, kOffset, kColumns };
constexpr std::array<absl::string_view, kColumns> kColumnNames = {"id", "lower", "upper", "size", "offset"};

// So that no sum of sizes and alignments can overflow an offset.
constexpr Bytes kMaxTotalBytes = Bytes{1} << 62;

// Reads one file; knows where it is.
class Reader {
 public:
  Reader(std::istream& input, const std::string& name) : input_(input), name_(name) {}

  absl::StatusOr<CsvInstance> Read() {
    if (absl::Status status = ReadHeader(); !status.ok()) return status;
    while (NextLine()) {
      if (absl::StripAsciiWhitespace(line_).empty()) continue;
      if (absl::Status status = ReadRow(); !status.ok()) return status;
    }
    if (input_.bad()) return absl::DataLossError(absl::StrCat(name_, ": cannot read after line ", line_number_));
    return std::move(instance_);
  }

 private:
  bool NextLine() {
    if (!std::getline(input_, line_)) return false;
    ++line_number_;
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    return true;
  }

  absl::Status Error(absl::string_view expected, absl::string_view found) const {
    return absl::InvalidArgumentError(
        absl::StrCat(name_, ":", line_number_, ": expected ", expected, ", found ", found));
  }

  absl::Status ReadHeader() {
    if (!NextLine()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name_, ":1: expected a header id,lower,upper,size, found an empty input"));
    }
    for (const absl::string_view field : absl::StrSplit(line_, ',')) {
      const absl::string_view title = absl::StripAsciiWhitespace(field);
      std::size_t column = 0;
      while (column < kColumns && kColumnNames[column] != title) ++column;
      if (column == kColumns) {
        return Error("columns of id,lower,upper,size[,offset]", absl::StrCat("'", title, "'"));
      }
      if (field_of_[column]) return Error("each column once", absl::StrCat("'", title, "' twice"));
      field_of_[column] = fields_++;
    }
    for (const Column column : {kId, kLower, kUpper, kSize}) {
      if (!field_of_[column]) {
        return Error(absl::StrCat("a column '", kColumnNames[column], "'"), absl::StrCat("'", line_, "'"));
      }
    }
    return absl::OkStatus();
  }

  template <typename Number>
  absl::Status ReadNumber(const std::vector<absl::string_view>& fields, Column column, Number& value) const {
    const absl::string_view text = fields[*field_of_[column]];
    if (absl::SimpleAtoi(text, &value)) return absl::OkStatus();
    const absl::string_view kind =
        std::numeric_limits<Number>::is_signed ? "a number" : "a number that is not negative";
    return Error(absl::StrCat(kind, " in column '", kColumnNames[column], "'"), absl::StrCat("'", text, "'"));
  }

  absl::Status ReadRow() {
    const std::vector<absl::string_view> fields = absl::StrSplit(line_, ',');
    if (fields.size() != fields_) {
      return Error(absl::StrCat(fields_, " fields"), absl::StrCat(fields.size(), ": '", line_, "'"));
    }
    Block block;
    Offset offset = 0;
    absl::Status status = ReadNumber(fields, kId, block.id);
    status.Update(ReadNumber(fields, kLower, block.life.begin));
    status.Update(ReadNumber(fields, kUpper, block.life.end));
    status.Update(ReadNumber(fields, kSize, block.bytes));
    if (field_of_[kOffset]) status.Update(ReadNumber(fields, kOffset, offset));
    if (status.ok()) status = CheckBlock(block, offset);
    if (!status.ok()) return status;
    instance_.problem.blocks.push_back(block);
    if (field_of_[kOffset]) instance_.offsets.push_back(offset);
    return status;
  }

  absl::Status CheckBlock(const Block& block, Offset offset) {
    if (block.life.begin >= block.life.end) {
      return Error("lower < upper", absl::StrCat(block.life.begin, " and ", block.life.end));
    }
    if (block.bytes == 0) return Error("a size above 0", "0");
    if (block.bytes > kMaxTotalBytes - total_bytes_) {
      return Error(absl::StrCat("sizes with a sum of at most ", kMaxTotalBytes), absl::StrCat("size ", block.bytes));
    }
    if (offset > kMaxTotalBytes) {
      return Error(absl::StrCat("an offset of at most ", kMaxTotalBytes), absl::StrCat(offset));
    }
    total_bytes_ += block.bytes;
    const auto [entry, is_new] = line_of_id_.try_emplace(block.id, line_number_);
    if (is_new) return absl::OkStatus();
    return Error("ids that are unique", absl::StrCat("id ", block.id, " of line ", entry->second, " again"));
  }

  std::istream& input_;
  const std::string& name_;
  std::string line_;
  std::size_t line_number_ = 0;
  std::size_t fields_ = 0;
  std::array<std::optional<std::size_t>, kColumns> field_of_;  // where a column stands in a row
  Bytes total_bytes_ = 0;
  absl::flat_hash_map<std::uint64_t, std::size_t> line_of_id_;
  CsvInstance instance_;
};

}  // namespace

absl::StatusOr<CsvInstance> ReadCsv(std::istream& input, const std::string& name) { return Reader(input, name).Read(); }

absl::StatusOr<CsvInstance> ReadCsvFile(const std::string& path) {
  std::ifstream input(path);
  if (!input) return absl::NotFoundError(absl::StrCat("cannot open ", path, ": ", std::strerror(errno)));
  return ReadCsv(input, path);
}

void WriteCsv(const Problem& problem, const Packing& packing, std::ostream& output) {
  const bool is_solved = !packing.offsets.empty();
  output << (is_solved ? "id,lower,upper,size,offset\n" : "id,lower,upper,size\n");
  for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
    const Block& block = problem.blocks[i];
    output << block.id << ',' << block.life.begin << ',' << block.life.end << ',' << block.bytes;
    if (is_solved) output << ',' << packing.offsets[i];
    output << '\n';
  }
}

absl::Status WriteCsvFile(const Problem& problem, const Packing& packing, const std::string& path) {
  const std::string temporary = absl::StrCat(path, ".", ::getpid(), ".tmp");
  const auto fail = [&](absl::string_view what) {
    const std::string reason = std::strerror(errno);
    std::remove(temporary.c_str());
    return absl::UnavailableError(absl::StrCat("cannot ", what, " ", path, ": ", reason));
  };
  std::ofstream output(temporary);
  if (!output) return fail("create");
  WriteCsv(problem, packing, output);
  output.close();
  if (!output) return fail("write");
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return fail("replace");
  return absl::OkStatus();
}

}  // namespace stalloc::planner
