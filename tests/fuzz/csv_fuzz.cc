// The reader of packing instances in CSV: what it accepts keeps the rules of problem.h and comes back equal from what
// WriteCsv makes of it; what it refuses, it refuses with file and line.
#include <sstream>

#include "absl/strings/match.h"
#include "planner/packing/problem/csv.h"
#include "tests/fuzz/fuzz_target.h"

namespace stalloc::fuzz {
namespace {

using planner::Block;
using planner::CsvInstance;

constexpr char kName[] = "fuzz.csv";

absl::StatusOr<CsvInstance> Read(const std::string& text) {
  std::istringstream input(text);
  return planner::ReadCsv(input, kName);
}

bool Same(const Block& a, const Block& b) { return a.id == b.id && a.bytes == b.bytes && a.life == b.life; }

void CheckAccepted(CsvInstance instance) {
  const std::vector<Block>& blocks = instance.problem.blocks;
  Require(instance.offsets.empty() || instance.offsets.size() == blocks.size(), "an offset for each block, or none");
  instance.offsets.resize(blocks.size());
  Bytes total = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Require(blocks[i].bytes > 0 && blocks[i].life.begin < blocks[i].life.end, "blocks are not empty");
    Require(blocks[i].bytes + instance.offsets[i] > instance.offsets[i], "no end passes the address space");
    Require(total + blocks[i].bytes > total, "no sum of sizes overflows");
    total += blocks[i].bytes;
  }
  std::ostringstream written;
  planner::WriteCsv(instance.problem, {instance.offsets, 0}, written);
  const absl::StatusOr<CsvInstance> again = Read(written.str());
  Require(again.ok(), "what was accepted can be written and read again");
  Require(again->problem.blocks.size() == blocks.size(), "the blocks come back");
  Require(again->offsets == instance.offsets, "the offsets come back");
  for (std::size_t i = 0; i < blocks.size(); ++i)
    Require(Same(blocks[i], again->problem.blocks[i]), "blocks come back equal");
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds = {"id,lower,upper,size\n", "id,lower,upper,size\n0,3,9,4\n7,-1,2,100\n",
                                    "size,offset,id,upper,lower\r\n4,64,0,9,3\r\n\r\n",
                                    "id,lower,upper,size,offset\n0,-9223372036854775808,9223372036854775807,1,0\n"};
  std::string many = "id,lower,upper,size,offset\n";
  for (int i = 0; i < 40; ++i) {
    many += std::to_string(i * i) + "," + std::to_string(i) + "," + std::to_string(2 * i + 1) + "," +
            std::to_string(512 << (i % 20)) + "," + std::to_string(i * 512) + "\n";
  }
  seeds.push_back(many);
  return seeds;
}

}  // namespace stalloc::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stalloc::fuzz;  // NOLINT
  auto instance = Read(std::string(reinterpret_cast<const char*>(data), size));
  if (!instance.ok()) {
    Require(absl::StartsWith(instance.status().message(), "fuzz.csv:"), "errors name the file");
    return -1;
  }
  CheckAccepted(*std::move(instance));
  return 0;
}
