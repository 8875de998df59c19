// main() of a fuzz target where libFuzzer is not at hand, and in CTest: the target's seeds, then mutations of them and
// of what the reader accepted, for a while. No coverage feedback.
//
//   TARGET [--seconds S] [--seed N]      exit code 0, or 1 with the input that ended the process in ./crash-TARGET
//   TARGET FILE...                       those inputs alone, in this process, for a debugger
//   TARGET --write-seeds DIR             a corpus for libFuzzer
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutator.h"

namespace stalloc::fuzz {
namespace {

constexpr std::size_t kMaxPool = 512;

struct Options {
  double seconds = 2;
  std::uint64_t seed = 1;
  std::string seeds_to;
  std::vector<std::string> files;
};

// The input in hand, where a parent process still finds it when the child has gone.
struct Shared {
  std::size_t size;
  std::uint64_t inputs;
  std::uint64_t accepted;
  char bytes[Mutator::kMaxBytes];
};

bool RunOne(const std::string& input, Shared& shared) {
  shared.size = std::min(input.size(), sizeof(shared.bytes));
  std::memcpy(shared.bytes, input.data(), shared.size);
  ++shared.inputs;
  // A copy of its own size, so that the address sanitizer sees a read behind it.
  const std::vector<std::uint8_t> copy(input.begin(), input.end());
  const bool accepted = LLVMFuzzerTestOneInput(copy.data(), copy.size()) == 0;
  shared.accepted += accepted ? 1 : 0;
  return accepted;
}

void Fuzz(const Options& options, Shared& shared) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.seconds));
  std::vector<std::string> pool = Seeds();
  for (const std::string& seed : pool) Require(RunOne(seed, shared), "the reader accepts every seed");
  RunOne("", shared);
  Mutator mutator(options.seed);
  while (Clock::now() < end) {
    std::string input = mutator.Mutate(pool[mutator.Below(pool.size())], pool[mutator.Below(pool.size())]);
    if (!RunOne(input, shared)) continue;
    if (pool.size() < kMaxPool) {
      pool.push_back(std::move(input));
    } else {
      pool[mutator.Below(pool.size())] = std::move(input);
    }
  }
}

std::string ReadBinary(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void WriteBinary(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// In a child, since what is looked for ends the process.
int FuzzInChild(const Options& options, const std::string& target) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return std::perror("mmap"), 1;
  auto& shared = *static_cast<Shared*>(memory);
  const pid_t child = fork();
  if (child < 0) return std::perror("fork"), 1;
  if (child == 0) {
    Fuzz(options, shared);
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::cout << target << ": seed " << options.seed << ", " << shared.inputs << " inputs, " << shared.accepted
            << " accepted\n";
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
  WriteBinary("crash-" + target, {shared.bytes, shared.size});
  std::cerr << target << ": failed; the input is in ./crash-" << target << "\n";
  return 1;
}

int Run(const Options& options, const std::string& target) {
  if (!options.seeds_to.empty()) {
    std::filesystem::create_directories(options.seeds_to);
    const std::vector<std::string> seeds = Seeds();
    for (std::size_t i = 0; i < seeds.size(); ++i) {
      WriteBinary(std::filesystem::path(options.seeds_to) / std::to_string(i), seeds[i]);
    }
    return 0;
  }
  for (const std::string& file : options.files) {
    const std::string input = ReadBinary(file);
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  }
  return options.files.empty() ? FuzzInChild(options, target) : 0;
}

}  // namespace
}  // namespace stalloc::fuzz

int main(int argc, char** argv) {
  stalloc::fuzz::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (argument == "--seconds") {
      options.seconds = std::strtod(value, nullptr), ++i;
    } else if (argument == "--seed") {
      options.seed = std::strtoull(value, nullptr, 10), ++i;
    } else if (argument == "--write-seeds") {
      options.seeds_to = value, ++i;
    } else {
      options.files.push_back(argument);
    }
  }
  return stalloc::fuzz::Run(options, std::filesystem::path(argv[0]).filename().string());
}
