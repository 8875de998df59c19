#include "allocator/torch/use_recorder.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "allocator/base/clock.h"

namespace stalloc {
namespace {

Session* g_session = nullptr;
c10::DeviceType g_device = c10::DeviceType::CPU;

// Operations
// -----------------------------------------------------------------------------------------------------------

// Those of aten whose name says that they allocate, and at most look at a shape.
bool OnlyAllocates(std::string_view name) {
  constexpr std::array<std::string_view, 3> kPrefixes = {"aten::empty", "aten::new_", "aten::resize_"};
  return name.starts_with("aten::") &&
         (name.ends_with("_like") || std::any_of(kPrefixes.begin(), kPrefixes.end(),
                                                 [&](std::string_view prefix) { return name.starts_with(prefix); }));
}

// Those that change what a tensor says of itself.
bool ChangesTensorAlone(std::string_view name) {
  constexpr std::array<std::string_view, 6> kNames = {"aten::set_",     "aten::detach_",     "aten::requires_grad_",
                                                      "aten::set_data", "aten::retain_grad", "aten::is_same_size"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

// A view: a result that is an argument under another shape. What it copies after all, an operation inside of it does.
bool IsView(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  return std::any_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

// A number or a truth about a tensor, which follows from its shape, but for the few that read.
bool AsksShape(std::string_view name, const c10::FunctionSchema& schema) {
  if (name == "aten::_local_scalar_dense" || name == "aten::equal" || schema.returns().empty()) return false;
  const auto holds_tensor = [](const c10::Argument& result) {
    const c10::TypeKind kind = result.type()->kind();
    return kind != c10::TypeKind::IntType && kind != c10::TypeKind::BoolType && kind != c10::TypeKind::FloatType &&
           kind != c10::TypeKind::NumberType && kind != c10::TypeKind::SymIntType;
  };
  return std::none_of(schema.returns().begin(), schema.returns().end(), holds_tensor) && !schema.is_mutable();
}

bool TouchesBytes(std::string_view name, const at::RecordFunction& function) {
  if (OnlyAllocates(name) || ChangesTensorAlone(name)) return false;
  const auto schema = function.operator_schema();  // copies it: once for each operation and thread
  return !schema.has_value() || (!IsView(*schema) && !AsksShape(name, *schema));
}

constexpr std::int64_t kNotUsed = -1;

// The number of the operation's name in the trace; kNotUsed if it uses no blocks.
std::int64_t NumberOf(const at::RecordFunction& function) {
  static thread_local std::unordered_map<std::string, std::int64_t> known;
  const std::string name = function.name();
  if (const auto found = known.find(name); found != known.end()) return found->second;
  return known.emplace(name, TouchesBytes(name, function) ? g_session->Text(name) : kNotUsed).first->second;
}

// Blocks
// ---------------------------------------------------------------------------------------------------------------

using Blocks = c10::SmallVector<const void*, 8>;

void AddBlock(const c10::TensorImpl* tensor, Blocks* blocks) {
  if (!tensor->has_storage()) return;
  c10::StorageImpl* const storage = tensor->unsafe_storage().unsafeGetStorageImpl();
  if (storage == nullptr || storage->device_type() != g_device) return;
  if (const void* const block = storage->_mutable_data_ptr_no_checks().get(); block != nullptr)
    blocks->push_back(block);
}

void AddBlocks(const c10::IValue& value, Blocks* blocks) {
  if (value.isTensor()) {
    AddBlock(value.unsafeToTensorImpl(), blocks);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (!element.isTensor() && !element.isNone()) return;  // a list of numbers
      if (element.isTensor()) AddBlock(element.unsafeToTensorImpl(), blocks);
    }
  }
}

struct Call final : at::ObserverContext {
  std::int64_t began_ns = 0;
  std::uint32_t operation = 0;
  Blocks arguments;  // addresses alone: the operation may free them
};

std::unique_ptr<at::ObserverContext> Begin(const at::RecordFunction& function) {
  const std::int64_t operation = NumberOf(function);
  if (operation == kNotUsed) return nullptr;
  auto call = std::make_unique<Call>();
  call->began_ns = MonotonicNanoseconds();
  call->operation = static_cast<std::uint32_t>(operation);
  for (const c10::IValue& input : function.inputs()) AddBlocks(input, &call->arguments);
  for (const void* block : call->arguments) {
    g_session->Use(block, UseKind::kArgument, call->began_ns, call->operation);
  }
  return call;
}

void End(const at::RecordFunction& function, at::ObserverContext* context) {
  const auto* const call = static_cast<const Call*>(context);
  if (call == nullptr) return;
  for (const void* block : call->arguments) {
    g_session->Use(block, UseKind::kArgument, call->began_ns, call->operation);
  }
  Blocks results;
  for (const c10::IValue& output : function.outputs()) AddBlocks(output, &results);
  for (const void* block : results) g_session->Use(block, UseKind::kResult, call->began_ns, call->operation);
}

}  // namespace

void RecordUses(Session* session, c10::DeviceType device) {
  g_session = session;
  g_device = device;
  at::addGlobalCallback(at::RecordFunctionCallback(Begin, End)
                            .needsInputs(true)
                            .needsOutputs(true)
                            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

}  // namespace stalloc
