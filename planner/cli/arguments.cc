#include "planner/cli/arguments.h"

#include <algorithm>
#include <cstddef>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace stalloc::planner {
namespace {

std::string WithDashes(const std::string& name) { return absl::StrReplaceAll(name, {{"_", "-"}}); }

class Parser {
 public:
  Parser(const CommandSyntax& syntax, const std::vector<std::string>& arguments)
      : syntax_(syntax), arguments_(arguments) {}

  absl::StatusOr<std::vector<std::string>> Parse() {
    for (; next_ < arguments_.size(); ++next_) {
      const std::string& argument = arguments_[next_];
      if (argument == "--") {
        positional_.insert(positional_.end(), arguments_.begin() + static_cast<std::ptrdiff_t>(next_) + 1,
                           arguments_.end());
        break;
      }
      if (!absl::StartsWith(argument, "-") || argument == "-") {
        positional_.push_back(argument);
      } else if (absl::Status status = TakeFlag(argument); !status.ok()) {
        return status;
      }
    }
    return positional_;
  }

 private:
  absl::Status TakeFlag(const std::string& argument) {
    const std::size_t equals = argument.find('=');
    const std::string name =
        absl::StrReplaceAll(argument.substr(0, equals).substr(absl::StartsWith(argument, "--") ? 2 : 1), {{"-", "_"}});
    if (absl::CommandLineFlag* flag = Find(name); flag != nullptr) {
      if (equals != std::string::npos) return Set(flag, argument.substr(equals + 1));
      if (flag->IsOfType<bool>()) return Set(flag, "true");
      if (next_ + 1 == arguments_.size()) {
        return absl::InvalidArgumentError(absl::StrCat(argument, " needs a value"));
      }
      return Set(flag, arguments_[++next_]);
    }
    if (absl::StartsWith(name, "no") && equals == std::string::npos) {
      if (absl::CommandLineFlag* flag = Find(name.substr(2)); flag != nullptr && flag->IsOfType<bool>()) {
        return Set(flag, "false");
      }
    }
    return absl::InvalidArgumentError(absl::StrCat("unknown flag: ", argument));
  }

  absl::CommandLineFlag* Find(const std::string& name) const {
    const bool taken = std::find(syntax_.flags.begin(), syntax_.flags.end(), name) != syntax_.flags.end();
    return taken ? absl::FindCommandLineFlag(name) : nullptr;
  }

  static absl::Status Set(absl::CommandLineFlag* flag, const std::string& value) {
    std::string error;
    if (!flag->ParseFrom(value, &error)) {
      return absl::InvalidArgumentError(absl::StrCat("--", WithDashes(std::string(flag->Name())), "=", value, ": ",
                                                     error.empty() ? "not a value of this flag" : error));
    }
    return absl::OkStatus();
  }

  const CommandSyntax& syntax_;
  const std::vector<std::string>& arguments_;
  std::vector<std::string> positional_;
  std::size_t next_ = 0;
};

// "  --rank=R  Plan the rank R alone. [0]": the value's name is the first `word` of the help.
void AppendFlag(const std::string& name, std::string* text) {
  const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
  const std::string help = flag->Help(), standard = flag->DefaultValue();
  std::string value;
  if (!flag->IsOfType<bool>()) {
    const std::vector<std::string> parts = absl::StrSplit(help, absl::MaxSplits('`', 2));
    value = absl::StrCat("=", parts.size() == 3 ? parts[1] : "N");
  }
  absl::StrAppend(text, "  --", WithDashes(name), value, "  ", absl::StrReplaceAll(help, {{"`", ""}}),
                  standard.empty() || standard == "false" ? "" : absl::StrCat(" [", standard, "]"), "\n");
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseArguments(const CommandSyntax& syntax,
                                                        const std::vector<std::string>& arguments) {
  return Parser(syntax, arguments).Parse();
}

bool AsksForHelp(const std::vector<std::string>& arguments) {
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  return std::any_of(arguments.begin(), end,
                     [](const std::string& argument) { return argument == "--help" || argument == "-h"; });
}

std::string HelpText(const CommandSyntax& syntax, const std::string& program) {
  std::string text = absl::StrCat("usage: ", program, " ", syntax.name, " ", syntax.positional,
                                  syntax.positional.empty() ? "" : " ", "[flags]\n\n", syntax.purpose, "\n");
  if (!syntax.details.empty()) {
    absl::StrAppend(&text, "\n", syntax.details);
  }
  absl::StrAppend(&text, "\nflags:\n");
  for (const std::string& name : syntax.flags) AppendFlag(name, &text);
  if (!syntax.examples.empty()) {
    absl::StrAppend(&text, "\nexamples:\n");
    for (const absl::string_view line : absl::StrSplit(syntax.examples, '\n', absl::SkipEmpty())) {
      absl::StrAppend(&text, "  ", program, " ", line, "\n");
    }
  }
  return text;
}

}  // namespace stalloc::planner
