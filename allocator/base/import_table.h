// ImportTable: the functions that a loaded ELF library imports, and their replacement.
//
// A library reaches an imported function through slots: 8 bytes that hold its address, in the tables that the dynamic
// linker fills. Replace puts another function there, for the calls of this one library. Slots of functions that were
// not called yet may lead to the linker, which binds them at the first call; what they will be bound to is looked up.
//
// For 64-bit ELF with glibc (x86-64, AArch64). Thread-safe, but for one race: a first call on another thread, which
// binds the slot at the same time, may undo a replacement. So replace before other threads call the function. The
// library is never unloaded afterwards.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/model/result.h"

namespace stalloc {

class ImportTable {
 public:
  // For the loaded library with that file name ("libtorch_cuda.so"). Errors: none is loaded, its tables are not there.
  [[nodiscard]] static Result<ImportTable> Of(const std::string& file_name);

  [[nodiscard]] const std::string& path() const { return path_; }

  // All slots of the function; empty: the library does not import it.
  [[nodiscard]] std::vector<void**> Find(const std::string& symbol) const;
  // What the library's calls reach, or will reach. Errors: not imported, or nobody defines it.
  [[nodiscard]] Result<void*> Function(const std::string& symbol) const;
  // Returns what the calls reached before; to be given to Replace again to undo it. REQUIRES: `function` is never
  // unloaded. Errors: as above, and of mprotect; then all slots are as before.
  Result<void*> Replace(const std::string& symbol, void* function);

 private:
  struct Range {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    [[nodiscard]] bool Has(std::uintptr_t address) const { return address >= begin && address < end; }
  };

  ImportTable() = default;
  void ReadSegments(const dl_phdr_info& info);
  void ReadDynamic(const ElfW(Dyn) * dynamic);
  // Calls visit(relocation) for those of slots that are the symbol's.
  template <typename Visitor>
  void ForEach(const std::string& symbol, Visitor&& visit) const;
  [[nodiscard]] const char* VersionOf(std::size_t symbol_index) const;  // null: none is requested
  [[nodiscard]] Result<void*> Bound(void* const* slot, const std::string& symbol, const char* version) const;
  [[nodiscard]] Status Store(void** slot, void* function) const;

  std::string path_;
  void* handle_ = nullptr;  // of dlopen; keeps the library
  std::uintptr_t base_ = 0;
  Range loaded_;
  Range relro_;  // read-only once the linker is done; whole pages
  const ElfW(Dyn) * dynamic_ = nullptr;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  const ElfW(Half) * versions_ = nullptr;
  const ElfW(Verneed) * needed_ = nullptr;
  std::size_t needed_count_ = 0;
  std::span<const ElfW(Rela)> of_calls_;
  std::span<const ElfW(Rela)> of_data_;
};

}  // namespace stalloc
