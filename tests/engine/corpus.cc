#include "tests/engine/corpus.h"

#include <zlib.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace stalloc {
namespace {

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "corpus: %s\n", message.c_str());
  std::abort();
}

std::string PathOf(const std::string& name) {
  const char* root = std::getenv("STALLOC_SOURCE_DIR");
  return std::string(root != nullptr ? root : STALLOC_CORPUS_ROOT) + "/bench/corpus/" + name + ".txt.gz";
}

std::string Inflate(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) Die("cannot open, path=" + path);
  std::string text;
  std::vector<char> buffer(1 << 16);
  int got = 0;
  while ((got = gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()))) > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  gzclose(file);
  if (got < 0) Die("cannot inflate, path=" + path);
  return text;
}

template <typename T>
T Number(const char*& at, const char* end) {
  while (at != end && (*at == ' ' || *at == '\n')) ++at;
  T value{};
  const auto [next, error] = std::from_chars(at, end, value);
  if (error != std::errc()) Die("not a number: " + std::string(at, std::min<std::ptrdiff_t>(end - at, 20)));
  at = next;
  return value;
}

}  // namespace

std::vector<CorpusAllocation> Corpus::Iteration(int iteration) const {
  std::vector<CorpusAllocation> result;
  for (const CorpusAllocation& allocation : allocations) {
    if (allocation.iteration == iteration) result.push_back(allocation);
  }
  return result;
}

Corpus ReadCorpus(const std::string& name) {
  const std::string text = Inflate(PathOf(name));
  Corpus corpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (end - at > 1) {
    CorpusAllocation allocation;
    allocation.iteration = Number<int>(at, end);
    allocation.bytes = Number<Bytes>(at, end);
    allocation.alloc = Number<Tick>(at, end);
    allocation.free = Number<Tick>(at, end);
    corpus.allocations.push_back(allocation);
    while (at != end && *at == '\n') ++at;
  }
  if (corpus.allocations.empty()) Die("no allocations, name=" + name);
  return corpus;
}

Script ScriptOf(const std::vector<CorpusAllocation>& requests) {
  Script script;
  for (const CorpusAllocation& request : requests) {
    Entry entry;
    entry.bytes = entry.min_bytes = entry.max_bytes = BlockBytes(request.bytes);
    script.entries.push_back(entry);
  }
  return script;
}

}  // namespace stalloc
