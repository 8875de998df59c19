#include "allocator/record/python_stacks.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace stalloc {
namespace {

constexpr std::size_t kDeepest = 128;  // calls; of a deeper stack the outermost are left out

}  // namespace

// CPython's functions, stable since 3.11. Objects are opaque here.
struct PythonStacks::Interpreter {
  int (*is_initialized)() = nullptr;
  int (*is_finalizing)() = nullptr;  // under its older name before 3.13
  void* (*this_thread)() = nullptr;
  int (*take_lock)() = nullptr;
  void (*give_lock)(int) = nullptr;
  void* (*frame_of)(void*) = nullptr;
  void* (*caller_of)(void*) = nullptr;
  void* (*code_of)(void*) = nullptr;
  int (*instruction_of)(void*) = nullptr;
  int (*line_of)(void*, int) = nullptr;
  void* (*attribute)(void*, const char*) = nullptr;
  const char* (*utf8)(void*) = nullptr;
  void (*keep)(void*) = nullptr;
  void (*drop)(void*) = nullptr;
  void (*fetch_error)(void**, void**, void**) = nullptr;
  void (*restore_error)(void*, void*, void*) = nullptr;

  // The first function that is missing; empty: all are there.
  [[nodiscard]] std::string Find() {
    const auto find = [missing = std::string()](const char* name, auto* function) mutable {
      *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(RTLD_DEFAULT, name));
      if (*function == nullptr && missing.empty()) missing = name;
      return missing;
    };
    auto look = find;
    look("Py_IsInitialized", &is_initialized);
    look("PyGILState_GetThisThreadState", &this_thread);
    look("PyGILState_Ensure", &take_lock);
    look("PyGILState_Release", &give_lock);
    look("PyThreadState_GetFrame", &frame_of);
    look("PyFrame_GetBack", &caller_of);
    look("PyFrame_GetCode", &code_of);
    look("PyFrame_GetLasti", &instruction_of);
    look("PyCode_Addr2Line", &line_of);
    look("PyObject_GetAttrString", &attribute);
    look("PyUnicode_AsUTF8", &utf8);
    look("Py_IncRef", &keep);
    look("Py_DecRef", &drop);
    look("PyErr_Fetch", &fetch_error);
    std::string missing = look("PyErr_Restore", &restore_error);
    is_finalizing = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "Py_IsFinalizing"));
    if (is_finalizing == nullptr && missing.empty()) missing = look("_Py_IsFinalizing", &is_finalizing);
    return missing;
  }

  // An attribute that is a string; empty when it is none. The thread's error is as before.
  [[nodiscard]] std::string TextOf(void* object, const char* name) const {
    std::string text;
    void* const value = attribute(object, name);
    if (value == nullptr) return text;
    if (const char* const bytes = utf8(value); bytes != nullptr) text = bytes;
    drop(value);
    return text;
  }
};

PythonStacks::PythonStacks(std::unique_ptr<Interpreter> python, TextTable* texts, const StackSampling& sampling)
    : python_(std::move(python)), texts_(*texts), sampling_(sampling) {}

PythonStacks::~PythonStacks() = default;  // code objects are left to a process that ends

Result<std::unique_ptr<PythonStacks>> PythonStacks::Open(TextTable* texts, const StackSampling& sampling) {
  auto python = std::make_unique<Interpreter>();
  if (const std::string missing = python->Find(); !missing.empty()) {
    return Error{"stacks need Python 3.11 or later in the process, which lacks " + missing};
  }
  return std::unique_ptr<PythonStacks>(new PythonStacks(std::move(python), texts, sampling));
}

std::size_t PythonStacks::HashPlace::operator()(const Place& place) const noexcept {
  const auto code = reinterpret_cast<std::uintptr_t>(place.frame.code);
  const std::uint64_t low =
      static_cast<std::uint64_t>(place.parent_plus_one) << 32 | static_cast<std::uint32_t>(place.frame.instruction);
  return static_cast<std::size_t>((code ^ low * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u >> 7);
}

bool PythonStacks::IsChosen(Bytes requested) const noexcept {
  if (sampling_.least != 0) return requested >= sampling_.least;
  static thread_local std::uint32_t requests = 0;
  return requests++ % sampling_.every == 0;
}

std::uint32_t PythonStacks::Capture(Bytes requested) noexcept {
  const Interpreter& python = *python_;
  if (!IsChosen(requested) || python.is_initialized() == 0 || python.is_finalizing() != 0) return 0;
  if (python.this_thread() == nullptr) return 0;
  std::uint32_t stack = 0;
  const int lock = python.take_lock();
  // An allocation may come from where an exception is on its way.
  std::array<void*, 3> error{};
  python.fetch_error(&error[0], &error[1], &error[2]);
  try {
    stack = Walk();
  } catch (...) {  // no memory for a stack: the allocation stays without
  }
  python.restore_error(error[0], error[1], error[2]);
  python.give_lock(lock);
  return stack;
}

// REQUIRES: the interpreter's lock.
std::uint32_t PythonStacks::Walk() {
  const Interpreter& python = *python_;
  std::array<Frame, kDeepest> frames;
  std::size_t depth = 0;
  void* frame = python.frame_of(python.this_thread());
  while (frame != nullptr && depth < kDeepest) {
    void* const code = python.code_of(frame);
    frames[depth++] = {code, python.instruction_of(frame)};
    python.drop(code);  // the frame holds it
    void* const caller = python.caller_of(frame);
    python.drop(frame);
    frame = caller;
  }
  if (frame != nullptr) python.drop(frame);

  // Outermost first. One stack begins as the one before it does.
  struct Last {
    const PythonStacks* owner = nullptr;
    std::array<Frame, kDeepest> frames;
    std::array<std::uint32_t, kDeepest> numbers;
    std::size_t depth = 0;
  };
  static thread_local Last last;
  if (last.owner != this) last.depth = 0;
  last.owner = this;
  std::uint32_t number = 0;
  bool same = true;
  for (std::size_t i = 0; i < depth; ++i) {
    const Frame& at = frames[depth - 1 - i];
    same = same && i < last.depth && last.frames[i] == at;
    number = same ? last.numbers[i] : NumberOf({number, at});
    last.frames[i] = at;
    last.numbers[i] = number;
  }
  last.depth = depth;
  return number;
}

std::uint32_t PythonStacks::NumberOf(const Place& place) {
  const std::lock_guard lock(mutex_);
  if (const auto known = numbers_.find(place); known != numbers_.end()) return known->second;
  const Interpreter& python = *python_;
  void* const code = place.frame.code;
  std::string function = python.TextOf(code, "co_qualname");
  if (function.empty()) function = python.TextOf(code, "co_name");
  const int line = python.line_of(code, place.frame.instruction);
  calls_.push_back({.parent_plus_one = place.parent_plus_one,
                    .function = texts_.Number(function),
                    .file = texts_.Number(python.TextOf(code, "co_filename")),
                    .line = static_cast<std::uint32_t>(std::max(line, 0))});
  python.keep(code);  // its address names it from now on
  const auto number = static_cast<std::uint32_t>(calls_.size());
  numbers_.emplace(place, number);
  return number;
}

std::size_t PythonStacks::CopyFrom(std::size_t from, std::vector<StackCall>* out) const {
  const std::lock_guard lock(mutex_);
  out->insert(out->end(), calls_.begin() + static_cast<std::ptrdiff_t>(from), calls_.end());
  return calls_.size();
}

}  // namespace stalloc
