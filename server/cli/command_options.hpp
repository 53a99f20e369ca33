#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "api/spec_overrides.hpp"
#include "base/error.hpp"
#include "pipeline/store/store_export.hpp"
#include "server/http/caller.hpp"

namespace CLI {
class App;
}

namespace distilld::cli {

struct RunCommand {
    std::string spec;  ///< file, "-" = stdin
    bool resume = false;
    std::vector<api::Override> overrides;  ///< from --set and the other flags, in the order they apply
    std::string trace_file;
    std::string report_file;
    std::string metrics_listen;  ///< ADDRESS:PORT to serve metrics at during the run; empty = nowhere
};

/// The flags of `run` that set fields of the spec.
struct SpecFlags {
    std::vector<std::string> sets;
    bool overwrite = false;
    std::vector<std::vector<std::string>> words;  ///< by flag that sets a field
};

/// The flags of `generate` itself.
struct GenerateFlags {
    RunCommand run;
    std::string store;
    std::string format;
    std::string values;
    std::vector<std::string> endpoints;
    std::vector<std::string> sets;
};

/// Options of `distilld keys`.
struct KeysCommand {
    enum class Action { add, list, revoke };
    Action action = Action::list;
    std::filesystem::path data_dir;  ///< of the service
    std::string name;                ///< add, revoke
    http::Role role = http::Role::read;
    bool json = false;
};

/// Options of `distilld spec`.
struct SpecCommand {
    enum class Action { init, check, explain };
    Action action = Action::check;
    std::string subject;            ///< check: the spec's file, "-" = stdin; explain: a field, empty = all
    bool json = false;              ///< check
    std::vector<std::string> sets;  ///< check: as run's --set

    std::string model;  ///< init: the student's folder
    std::string data;   ///< init: the training data
    std::string eval;   ///< init; empty = none
    std::vector<std::string> endpoints;
    std::string output = "student";
};

/// Options of `distilld store`.
struct StoreCommand {
    enum class Action { inspect, verify, export_, import_ };
    Action action = Action::inspect;
    std::filesystem::path folder;
    bool json = false;

    std::filesystem::path against;   ///< inspect: a store with the logits of the same data; empty = none
    std::uint64_t max_rows = 1'000;  ///< inspect: number of rows to compare

    std::filesystem::path file;       ///< import: llama.cpp's file
    std::filesystem::path dataset;    ///< import: the dataset to write
    std::optional<std::int32_t> bos;  ///< import: in place of each chunk's first token

    std::filesystem::path to;  ///< export, import: the folder of the new store; export: empty = lines
    std::string lines_file;    ///< export: JSON lines, "-" = stdout
    StoreExport wanted;        ///< export, import: content of the new store
    std::uint64_t first_row = 0;
    std::uint64_t rows = 0;  ///< 0: all
};

/// Adds a command that has --version.
CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& description);

void add_run_options(CLI::App& run, RunCommand& command, SpecFlags& flags);
void add_generate_options(CLI::App& generate, GenerateFlags& flags);
/// Add the subcommands.
void add_keys_options(CLI::App& keys, KeysCommand& command);
void add_spec_options(CLI::App& spec, SpecCommand& command);
void add_store_options(CLI::App& store, StoreCommand& command);

/// The values of --set, in order.
[[nodiscard]] Result<std::vector<api::Override>> parse_sets(const std::vector<std::string>& sets);
/// `run` with the overrides in order: --set first, so that other flags win.
[[nodiscard]] Result<RunCommand> run_command(RunCommand run, const SpecFlags& flags);
/// `run` with the kind generate.
[[nodiscard]] Result<RunCommand> generate_command(const GenerateFlags& flags);

}  // namespace distilld::cli
