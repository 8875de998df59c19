#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <iterator>

namespace stalloc::fuzz {
namespace {

// Values at which binary and decimal readers change their mind.
const std::string kPieces[] = {std::string(1, '\0'),
                               "\x01",
                               "\x7f",
                               "\x80",
                               "\xff",
                               "\xff\xff\xff\xff\x0f",                      // a varint of 2^32 - 1
                               "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  // of 2^64 - 1
                               std::string(8, '\0'),
                               "0",
                               "-1",
                               "9223372036854775807",
                               "-9223372036854775808",
                               "18446744073709551616",
                               ",",
                               "\n",
                               "\r\n",
                               " ",
                               "x"};

}  // namespace

std::string Mutator::Mutate(std::string input, const std::string& other) {
  for (std::size_t changes = 1 + Below(8); changes > 0; --changes) ChangeOnce(input, other);
  if (input.size() > kMaxBytes) input.resize(kMaxBytes);
  return input;
}

void Mutator::ChangeOnce(std::string& input, const std::string& other) {
  const std::size_t at = Place(input);
  const std::size_t length = 1 + Below(1 + Below(32));
  switch (Below(8)) {
    case 0:
      if (!input.empty()) input[at] = static_cast<char>(input[at] ^ (1 << Below(8)));
      return;
    case 1:
      if (!input.empty()) input[at] = static_cast<char>(random_());
      return;
    case 2:
      if (!input.empty()) input[at] = static_cast<char>(input[at] + (Below(2) == 0 ? 1 : -1));
      return;
    case 3:
      input.insert(at, kPieces[Below(std::size(kPieces))]);
      return;
    case 4: {
      const std::string& piece = kPieces[Below(std::size(kPieces))];
      input.replace(at, piece.size(), piece);
      return;
    }
    case 5:
      input.erase(at, length);
      return;
    case 6:
      input.insert(at, std::string(input.substr(Place(input), length)));
      return;
    default: {
      const std::size_t from = Place(other);
      Below(4) == 0 ? input.replace(at, std::string::npos, other, from, std::string::npos)
                    : input.insert(at, other, from, length);
      return;
    }
  }
}

}  // namespace stalloc::fuzz
