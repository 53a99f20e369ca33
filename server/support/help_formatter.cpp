#include "server/support/help_formatter.hpp"

#include <CLI/CLI.hpp>

#include "base/join.hpp"
#include "server/support/command_tree.hpp"

namespace distilld {
namespace {

class HelpFormatter final : public CLI::Formatter {
  public:
    HelpFormatter() {
        label("Positionals", "Arguments");
        label("SUBCOMMAND", "COMMAND");
    }

    std::string make_option_name(const CLI::Option* option, bool /*is_positional*/) const override {
        return joined(described(*option).names, ",");
    }
    std::string make_option_opts(const CLI::Option* option) const override {
        const auto value = described(*option).value;
        return option->get_positional() || value.kind == CommandValue::Kind::none ? "" : " " + value.name;
    }
    std::string make_option_desc(const CLI::Option* option) const override {
        return option_text(described(*option), option->get_positional());
    }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> make_help_formatter() {
    return std::make_shared<HelpFormatter>();
}

}  // namespace distilld
