// Files and users for tests.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace stalloc {

// A directory that goes away with the test.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = std::filesystem::temp_directory_path() / "stalloc-test-XXXXXX";
    // Open to AsUnprivilegedUser.
    if (mkdtemp(pattern.data()) == nullptr || chmod(pattern.c_str(), 0755) != 0) std::abort();
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  [[nodiscard]] std::string File(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // Every file below and every empty directory, relative, sorted.
  [[nodiscard]] std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
      if (!std::filesystem::is_directory(entry) || std::filesystem::is_empty(entry)) {
        names.push_back(std::filesystem::relative(entry.path(), path_));
      }
    }
    std::ranges::sort(names);
    return names;
  }

 private:
  std::string path_;
};

// Removes an old file first: some file systems sync a file that is emptied and rewritten, which is slow for thousands
// of them.
inline void WriteBytes(const std::string& path, std::string_view bytes) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// "" if there is none.
inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// While it lives, permissions count even for a test that runs as root.
class AsUnprivilegedUser {
 public:
  AsUnprivilegedUser() : was_root_(geteuid() == 0) {
    if (was_root_ && seteuid(65534) != 0) std::abort();
  }
  ~AsUnprivilegedUser() {
    if (was_root_ && seteuid(0) != 0) std::abort();
  }
  AsUnprivilegedUser(const AsUnprivilegedUser&) = delete;
  AsUnprivilegedUser& operator=(const AsUnprivilegedUser&) = delete;

 private:
  const bool was_root_;
};

}  // namespace stalloc
