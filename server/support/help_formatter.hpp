#pragma once

#include <memory>

namespace CLI {
class FormatterBase;
}

namespace distilld {

/// Writes --help in the words of the manual page: what a value is, its range and its default stand behind the help
/// of an option. To be given to a program before its commands are added, which take it over.
[[nodiscard]] std::shared_ptr<CLI::FormatterBase> make_help_formatter();

}  // namespace distilld
