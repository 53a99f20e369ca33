#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "pipeline/store/store_export.hpp"

namespace CLI {
class App;
}

namespace distilld::cli {

/// What `distilld store` is to do.
struct StoreCommand {
    enum class Action { inspect, verify, export_, import_ };
    Action action = Action::inspect;
    std::filesystem::path folder;
    bool json = false;

    std::filesystem::path against;   ///< inspect: a store with the logits of the same data; empty = none
    std::uint64_t max_rows = 1'000;  ///< inspect: rows that are compared

    std::filesystem::path file;       ///< import: llama.cpp's file
    std::filesystem::path dataset;    ///< import: the dataset that is written
    std::optional<std::int32_t> bos;  ///< import: in place of each chunk's first token

    std::filesystem::path to;  ///< export, import: the folder of the new store; export: empty = lines
    std::string lines_file;    ///< export: JSON lines, "-" = stdout
    StoreExport wanted;        ///< export, import: what the new store is to hold
    std::uint64_t first_row = 0;
    std::uint64_t rows = 0;  ///< 0: all
};

/// The subcommands of `store`, which tell `version` when they are asked.
void add_store_options(CLI::App& store, StoreCommand& command, const std::string& version);

}  // namespace distilld::cli
