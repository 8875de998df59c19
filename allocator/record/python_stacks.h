// PythonStacks: the Python calls from which allocations come, each stack kept once.
//
// Calls form a tree: a stack is its innermost call, whose parents lead to the outermost. The interpreter is queried
// through functions that the process exports; nothing here is built against Python. A thread without a Python state has
// no stack; one with a state takes the interpreter's lock for as long as it walks its frames, as PyTorch's own memory
// history does. Nothing is captured while the interpreter shuts down.
//
// REQUIRES of Capture: the caller holds no lock that a thread might wait for while it holds the interpreter's.
//
// Thread-safe. Capture takes memory for calls that are new, and keeps their code objects alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "allocator/record/text_table.h"
#include "proto/model/result.h"
#include "proto/model/trace.h"
#include "proto/model/units.h"

namespace stalloc {

// For which allocations stacks are taken; of none by default.
struct StackSampling {
  std::uint32_t every = 0;  // each n-th of a thread's requests
  Bytes least = 0;          // those of so many bytes or more; 0: by number only

  [[nodiscard]] bool any() const noexcept { return every != 0 || least != 0; }
};

class PythonStacks {
 public:
  // Error: there is no Python in this process, or one that is too old (before 3.11).
  [[nodiscard]] static Result<std::unique_ptr<PythonStacks>> Open(TextTable* texts, const StackSampling& sampling);
  ~PythonStacks();

  // 1 + the number of the innermost call; 0: none was taken.
  [[nodiscard]] std::uint32_t Capture(Bytes requested) noexcept;

  // Appends the calls from number `from` on; returns how many there are now.
  [[nodiscard]] std::size_t CopyFrom(std::size_t from, std::vector<StackCall>* out) const;

 private:
  struct Interpreter;
  struct Frame {
    void* code = nullptr;
    int instruction = 0;
    bool operator==(const Frame&) const = default;
  };
  struct Place {
    std::uint32_t parent_plus_one = 0;
    Frame frame;
    bool operator==(const Place&) const = default;
  };
  struct HashPlace {
    [[nodiscard]] std::size_t operator()(const Place& place) const noexcept;
  };

  PythonStacks(std::unique_ptr<Interpreter> python, TextTable* texts, const StackSampling& sampling);
  [[nodiscard]] bool IsChosen(Bytes requested) const noexcept;
  [[nodiscard]] std::uint32_t Walk();
  [[nodiscard]] std::uint32_t NumberOf(const Place& place);

  const std::unique_ptr<Interpreter> python_;
  TextTable& texts_;
  const StackSampling sampling_;
  mutable std::mutex mutex_;  // guards the two below; taken with the interpreter's lock held, never the other way round
  std::unordered_map<Place, std::uint32_t, HashPlace> numbers_;  // + 1
  std::vector<StackCall> calls_;
};

}  // namespace stalloc
