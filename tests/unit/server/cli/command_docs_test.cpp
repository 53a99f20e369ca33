// Manual page and completions say what the help says, of every command and option.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "distilld_version.hpp"
#include "server/cli/command_line.hpp"
#include "server/support/completions.hpp"
#include "server/support/man_page.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/server/cli/all_commands.hpp"

namespace distilld::cli {
namespace {

using ::testing::HasSubstr;

std::string printed(const std::vector<std::string>& arguments) {
    const auto line = parse_command_line(arguments);
    EXPECT_EQ(line.exit_code, kDone);
    EXPECT_EQ(line.err, "");
    EXPECT_FALSE(line.command.has_value());
    return line.out;
}

std::string spaced(const std::vector<std::string>& command) {
    std::string text = "distilld";
    for (const auto& word : command) {
        text += " " + word;
    }
    return text;
}

/// The long options that the help of a command lists at the beginning of its lines.
std::set<std::string> options_in_help(std::vector<std::string> command) {
    command.emplace_back("--help");
    const auto help = printed(command);
    std::set<std::string> options;
    const std::regex pattern("\n  (?:-[a-z],)?(--[a-z-]+)");
    for (std::sregex_iterator match(help.begin(), help.end(), pattern); match != std::sregex_iterator(); ++match) {
        options.insert((*match)[1]);
    }
    return options;
}

/// The part of a text between what begins a command's section and what begins the next one.
std::string section(const std::string& text, const std::string& begin, const std::string& end) {
    const auto from = text.find(begin);
    EXPECT_NE(from, std::string::npos) << begin;
    return text.substr(from, text.find(end, from + begin.size()) - from);
}

TEST(CommandDocs, HoldEachOptionOfEachCommand) {
    const auto man = printed({"man"});
    std::size_t options = 0;
    for (const auto& command : test::kAllCommands) {
        const auto name = spaced(command);
        const auto man_section = section(man, command.empty() ? ".SH OPTIONS\n" : ".SS " + name + "\n", "\n.S");
        std::vector<std::string> typed{"__complete"};
        typed.insert(typed.end(), command.begin(), command.end());
        typed.emplace_back("--");
        const auto completed = "\n" + printed(typed);
        for (const auto& option : options_in_help(command)) {
            ++options;
            EXPECT_THAT(man_section, HasSubstr("\\fB" + std::regex_replace(option, std::regex("-"), "\\-") + "\\fR"))
                << name;
            EXPECT_THAT(completed, HasSubstr("\n" + option + "\t")) << name;
        }
    }
    EXPECT_GT(options, 50U);
}

TEST(CommandDocs, ManualPageTellsVersionDefaultsRangesAndExitCodes) {
    const auto man = printed({"man"});
    EXPECT_THAT(man, ::testing::StartsWith(".TH DISTILLD 1 \"\" \"distilld " + std::string(kVersion) + "\""));
    EXPECT_THAT(man, HasSubstr("before the job fails (0 to 1000); default: 3"));
    EXPECT_THAT(man, HasSubstr("130 interrupted"));
    EXPECT_THAT(man, HasSubstr("\\fBdistilld run\\fR [\\fIOPTION\\fR]... \\fISPEC\\fR"));
}

TEST(CommandDocs, ManualPageHasExamplesEnvironmentAndFiles) {
    const auto man = printed({"man"});
    EXPECT_THAT(section(man, ".SH EXAMPLES\n", "\n.SH"), HasSubstr("\ndistilld run job.json\n"));
    EXPECT_THAT(section(man, ".SH ENVIRONMENT\n", "\n.SH"), HasSubstr("\\fBDISTILLD_SERVER\\fR\n"));
    EXPECT_THAT(section(man, ".SH FILES\n", "\n.SH"), HasSubstr("\\fBOUTPUT/distilld.json\\fR\n"));
}

TEST(CommandDocs, TheTableOfProgramsHasEachCommand) {
    const auto text = test::read_bytes(test::source_dir() / "docs/configuration.md");
    const auto rows = section(text, "## Programs\n", "\n## ");
    for (const auto& command : test::kAllCommands) {
        if (command.empty()) {
            continue;
        }
        const auto row = section(rows, "\n| `distilld " + command.front(), "\n|");
        EXPECT_THAT(row, ::testing::ContainsRegex("[ |]" + command.back() + "[^a-z]")) << spaced(command);
    }
}

TEST(CommandDocs, TheManualPageHasEachVariableOfClients) {
    const auto man = printed({"man"});
    const auto text = test::read_bytes(test::source_dir() / "docs/configuration.md");
    const auto table = section(text, "## Environment\n", "\n## ");
    const std::regex variable("\n\\| `(DISTILLD_[A-Z_]+)");
    std::size_t count = 0;
    for (std::sregex_iterator match(table.begin(), table.end(), variable); match != std::sregex_iterator(); ++match) {
        EXPECT_THAT(man, HasSubstr((*match)[1].str()));
        ++count;
    }
    EXPECT_GE(count, 8U);
}

/// The help of a command.
std::string help_of(std::vector<std::string> command) {
    command.emplace_back("--help");
    return parse_command_line(command).out;
}

TEST(CommandDocs, HelpIsInWordsAndEndsWithAnExampleThatIsRead) {
    for (const auto& command : test::kAllCommands) {
        const auto help = help_of(command);
        for (const char* residue : {" in [", "UINT", "INT:", "TEXT:", "{false}", " REQUIRED", "Needs:", "(Env:"}) {
            EXPECT_THAT(help, ::testing::Not(HasSubstr(residue))) << command.back();
        }
        if (command.empty()) {
            continue;
        }
        std::string name = "  distilld";
        for (const auto& word : command) {
            name += " " + word;
        }
        const auto at = help.find("Example");
        ASSERT_NE(at, std::string::npos) << name;
        std::istringstream lines(help.substr(at));
        std::size_t examples = 0;
        for (std::string line; std::getline(lines, line);) {
            const auto begin = line.find("distilld ");
            if (!line.starts_with("  ") || begin == std::string::npos) {
                continue;
            }
            ++examples;
            std::vector<std::string> words;
            std::istringstream in(line.substr(begin + 9, line.find_first_of("|>", begin) - begin - 9));
            for (std::string word; in >> word;) {
                // The only one that has to be there when the line is read.
                words.push_back(word == "models/teacher" ? "/" : word);
            }
            // Settings of the service may be missing, which the line for them says.
            if (words != std::vector<std::string>{"serve", "--config", "distilld.toml", "--print-config"}) {
                EXPECT_EQ(parse_command_line(words).err, "") << line;
            }
        }
        EXPECT_GE(examples, 1U) << name;
    }
    EXPECT_THAT(help_of({"jobs", "set"}), HasSubstr("--priority N"));
    EXPECT_THAT(help_of({"jobs", "set"}), HasSubstr("(-100 to 100)"));
    EXPECT_THAT(help_of({"jobs", "cancel"}), HasSubstr("  --no-checkpoint  "));
    EXPECT_THAT(help_of({"teacher"}), HasSubstr("0 = all cores (0 to 4096); default: 0"));
    EXPECT_THAT(help_of({"keys", "add"}), HasSubstr("--role read|submit|admin"));
    EXPECT_THAT(help_of({"jobs", "get"}), HasSubstr("(else DISTILLD_SERVER); default: http://127.0.0.1:8500"));
}

TEST(CommandDocs, OfAnotherProgramAndOfTextThatRoffOrAShellWouldTakeForItsOwn) {
    CLI::App app{"tool: does it", "tool"};
    bool all = false;
    app.add_flag("--all", all, ".of it: a \\ in 'quotes' [and] more");
    std::string form;
    app.add_option("--form", form, "which")->check(CLI::IsMember({"a", "b"}));
    const auto tree = command_tree(app);
    EXPECT_THAT(man_page(tree, "9", {"other(1)"}), HasSubstr("\\&.of it: a \\e in"));
    using Words = std::vector<std::string>;
    EXPECT_EQ(candidates(tree, Words{"--a"}), "--all\t.of it: a \\ in 'quotes' [and] more\n");
    EXPECT_EQ(candidates(tree, Words{"--form", ""}), "a\nb\n");
    EXPECT_EQ(candidates(tree, Words{"--form", "=", "b"}), "b\n");
    EXPECT_EQ(candidates(tree, Words{"--form=b"}), "--form=b\n");
    EXPECT_EQ(candidates(tree, Words{"--all", "--fo"}), "--form\twhich\n");
    EXPECT_EQ(candidates(tree, {}), "");
}

TEST(CommandDocs, ShellsThatAreNotKnownAreRefused) {
    const auto line = parse_command_line({"completion", "tcsh"});
    EXPECT_EQ(line.exit_code, kWrongUsage);
    EXPECT_THAT(line.err, HasSubstr("tcsh"));
}

}  // namespace
}  // namespace distilld::cli
