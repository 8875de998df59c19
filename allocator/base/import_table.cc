#include "allocator/base/import_table.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>

namespace stalloc {
namespace {

#if defined(__x86_64__)
constexpr bool kKnowsMachine = true;
constexpr std::uint32_t kSlotTypes[] = {R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT, R_X86_64_64};
#elif defined(__aarch64__)
constexpr bool kKnowsMachine = true;
constexpr std::uint32_t kSlotTypes[] = {R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT, R_AARCH64_ABS64};
#else
constexpr bool kKnowsMachine = false;
constexpr std::uint32_t kSlotTypes[] = {0};
#endif

// The protection of pages is changed and changed back by one thread at a time.
std::mutex g_protection_mutex;

bool IsFileName(std::string_view path, std::string_view name) {
  return path == name ||
         (path.size() > name.size() && path.ends_with(name) && path[path.size() - name.size() - 1] == '/');
}

std::uintptr_t PageBytes() { return static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

// Reading -------------------------------------------------------------------------------------------------------------

Result<ImportTable> ImportTable::Of(const std::string& file_name) {
  if (!kKnowsMachine) return Error{"imports of a library are known for x86-64 and AArch64 alone"};
  struct Search {
    const std::string& name;
    ImportTable table;
    bool found = false;
  } search{file_name, ImportTable(), false};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        if (info->dlpi_name == nullptr || !IsFileName(info->dlpi_name, wanted.name)) return 0;
        wanted.table.path_ = info->dlpi_name;
        wanted.table.ReadSegments(*info);
        wanted.found = true;
        return 1;
      },
      &search);
  if (!search.found) return Error{"no library of the name " + file_name + " is loaded"};
  ImportTable& table = search.table;
  if (table.dynamic_ == nullptr) return Error{table.path_ + ": no dynamic section"};
  table.handle_ = dlopen(table.path_.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (table.handle_ == nullptr) return Error{table.path_ + ": is not loaded any more"};
  table.ReadDynamic(table.dynamic_);
  if (table.symbols_ == nullptr || table.strings_ == nullptr || (table.of_calls_.empty() && table.of_data_.empty())) {
    return Error{table.path_ + ": no table of symbols, or no relocations with addends"};
  }
  return std::move(table);
}

void ImportTable::ReadSegments(const dl_phdr_info& info) {
  base_ = info.dlpi_addr;
  const std::uintptr_t page = PageBytes();
  loaded_ = {~std::uintptr_t{0}, 0};
  for (const ElfW(Phdr) & header : std::span(info.dlpi_phdr, info.dlpi_phnum)) {
    const std::uintptr_t begin = base_ + header.p_vaddr;
    const std::uintptr_t end = begin + header.p_memsz;
    if (header.p_type == PT_LOAD) loaded_ = {std::min(loaded_.begin, begin), std::max(loaded_.end, end)};
    if (header.p_type == PT_GNU_RELRO) relro_ = {begin / page * page, end / page * page};  // as the linker rounds
    if (header.p_type == PT_DYNAMIC) dynamic_ = reinterpret_cast<const ElfW(Dyn)*>(begin);
  }
}

void ImportTable::ReadDynamic(const ElfW(Dyn) * dynamic) {
  // glibc has put addresses in the place of offsets, but for libraries whose dynamic section is read-only.
  const auto address = [this](const ElfW(Dyn) & entry) {
    return entry.d_un.d_ptr < base_ ? base_ + entry.d_un.d_ptr : entry.d_un.d_ptr;
  };
  std::uintptr_t calls = 0;
  std::uintptr_t data = 0;
  std::size_t call_bytes = 0;
  std::size_t data_bytes = 0;
  std::size_t relative_count = 0;  // these come first, and have no symbols
  bool calls_have_addends = false;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    switch (dynamic->d_tag) {
      case DT_SYMTAB:
        symbols_ = reinterpret_cast<const ElfW(Sym)*>(address(*dynamic));
        break;
      case DT_STRTAB:
        strings_ = reinterpret_cast<const char*>(address(*dynamic));
        break;
      case DT_VERSYM:
        versions_ = reinterpret_cast<const ElfW(Half)*>(address(*dynamic));
        break;
      case DT_VERNEED:
        needed_ = reinterpret_cast<const ElfW(Verneed)*>(address(*dynamic));
        break;
      case DT_VERNEEDNUM:
        needed_count_ = dynamic->d_un.d_val;
        break;
      case DT_JMPREL:
        calls = address(*dynamic);
        break;
      case DT_PLTRELSZ:
        call_bytes = dynamic->d_un.d_val;
        break;
      case DT_PLTREL:
        calls_have_addends = dynamic->d_un.d_val == DT_RELA;
        break;
      case DT_RELA:
        data = address(*dynamic);
        break;
      case DT_RELASZ:
        data_bytes = dynamic->d_un.d_val;
        break;
      case DT_RELACOUNT:
        relative_count = dynamic->d_un.d_val;
        break;
      default:
        break;
    }
  }
  const auto relocations = [](std::uintptr_t at, std::size_t bytes) {
    return std::span(reinterpret_cast<const ElfW(Rela)*>(at), at == 0 ? 0 : bytes / sizeof(ElfW(Rela)));
  };
  if (calls_have_addends) of_calls_ = relocations(calls, call_bytes);
  of_data_ = relocations(data, data_bytes);
  of_data_ = of_data_.subspan(std::min(relative_count, of_data_.size()));
}

// Finding -------------------------------------------------------------------------------------------------------------

template <typename Visitor>
void ImportTable::ForEach(const std::string& symbol, Visitor&& visit) const {
  for (const std::span<const ElfW(Rela)> relocations : {of_calls_, of_data_}) {
    for (const ElfW(Rela) & relocation : relocations) {
      const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(relocation.r_info));
      if (std::ranges::find(kSlotTypes, type) == std::end(kSlotTypes) || relocation.r_addend != 0) continue;
      const std::size_t index = ELF64_R_SYM(relocation.r_info);
      const ElfW(Sym)& entry = symbols_[index];
      if (index == 0 || entry.st_shndx != SHN_UNDEF || symbol != strings_ + entry.st_name) continue;
      visit(reinterpret_cast<void**>(base_ + relocation.r_offset), index);
    }
  }
}

std::vector<void**> ImportTable::Find(const std::string& symbol) const {
  std::vector<void**> slots;
  ForEach(symbol, [&](void** slot, std::size_t) { slots.push_back(slot); });
  return slots;
}

const char* ImportTable::VersionOf(std::size_t symbol_index) const {
  if (versions_ == nullptr || needed_ == nullptr) return nullptr;
  const unsigned version = versions_[symbol_index] & 0x7fffu;
  const auto* library = reinterpret_cast<const char*>(needed_);
  for (std::size_t i = 0; i < needed_count_; ++i) {
    const auto& need = *reinterpret_cast<const ElfW(Verneed)*>(library);
    const char* at = library + need.vn_aux;
    for (unsigned j = 0; j < need.vn_cnt; ++j) {
      const auto& one = *reinterpret_cast<const ElfW(Vernaux)*>(at);
      if (one.vna_other == version) return strings_ + one.vna_name;
      at += one.vna_next;
    }
    library += need.vn_next;
  }
  return nullptr;
}

// An imported function lies in another library. A slot that leads into this one leads to the linker.
Result<void*> ImportTable::Bound(void* const* slot, const std::string& symbol, const char* version) const {
  void* const held = std::atomic_ref(*const_cast<void**>(slot)).load(std::memory_order_relaxed);
  if (held != nullptr && !loaded_.Has(reinterpret_cast<std::uintptr_t>(held))) return held;
  // As the linker does: what is global, then what the library was linked with.
  for (void* const scope : {static_cast<void*>(RTLD_DEFAULT), handle_}) {
    void* const found = version == nullptr ? dlsym(scope, symbol.c_str()) : dlvsym(scope, symbol.c_str(), version);
    if (found != nullptr) return found;
  }
  return Error{path_ + ": imports " + symbol + (version == nullptr ? "" : std::string("@") + version) +
               ", which no loaded library defines"};
}

Result<void*> ImportTable::Function(const std::string& symbol) const {
  std::optional<Result<void*>> function;
  ForEach(symbol, [&](void** slot, std::size_t index) {
    if (!function.has_value()) function = Bound(slot, symbol, VersionOf(index));
  });
  return function.has_value() ? *function : Result<void*>(Error{path_ + ": does not import " + symbol});
}

// Replacing -----------------------------------------------------------------------------------------------------------

Status ImportTable::Store(void** slot, void* function) const {
  const auto at = reinterpret_cast<std::uintptr_t>(slot);
  const std::lock_guard lock(g_protection_mutex);
  const bool read_only = relro_.Has(at);
  const std::uintptr_t page = PageBytes();
  void* const begin = reinterpret_cast<void*>(at / page * page);
  if (read_only && mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) {
    return Error{path_ + ": mprotect of its imports: " + std::strerror(errno)};
  }
  std::atomic_ref(*slot).store(function, std::memory_order_release);
  if (read_only) (void)mprotect(begin, page, PROT_READ);
  return Ok{};
}

Result<void*> ImportTable::Replace(const std::string& symbol, void* function) {
  Result<void*> former = Function(symbol);
  if (!former.ok()) return former;
  const std::vector<void**> slots = Find(symbol);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Status stored = Store(slots[i], function);
    if (stored.ok()) continue;
    while (i-- > 0) (void)Store(slots[i], former.value());
    return Error{stored.error()};
  }
  return former;
}

}  // namespace stalloc
