#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <memory>
#include <system_error>

#include "base/format.hpp"
#include "base/join.hpp"
#include "base/json_fields.hpp"
#include "distilld_version.hpp"
#include "pipeline/store/store_checks.hpp"
#include "pipeline/store/store_export.hpp"
#include "pipeline/store/store_reader.hpp"
#include "server/cli/commands.hpp"
#include "server/cli/store_import.hpp"

namespace distilld::cli {
namespace {

namespace json = boost::json;

int fail(const Error& error) {
    std::fprintf(stderr, "distilld store: %s\n", error.message.c_str());
    return error.kind == ErrorKind::invalid_input ? kWrongUsage : kFailed;
}

std::string line(const char* name, const std::string& text) {
    std::string padded = name;
    padded.resize(std::max<std::size_t>(padded.size() + 1, 10), ' ');
    return padded + text + "\n";
}

/// About four digits.
std::string short_number(double number) {
    return formatted("%.4g", number);
}

std::string size_text(std::uint64_t bytes) {
    const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1000 && unit + 1 < std::size(units); ++unit) {
        value /= 1000;
    }
    return short_number(value) + " " + units[unit];
}

/// The figures of a store for the command line.
struct Figures {
    std::uint64_t sealed_rows = 0;
    std::uint64_t sealed_shards = 0;
    std::uint64_t unsealed_rows = 0;  ///< readable ones
    bool has_writer = false;
    std::uint64_t tokens = 0;
    std::uint64_t bytes = 0;
    double kl_sum = 0;
    std::uint64_t kl_tokens = 0;

    explicit Figures(const StoreReader& reader) {
        for (const StoreShard& shard : reader.shards()) {
            sealed_rows += shard.rows;
            ++sealed_shards;
            tokens += shard.tokens;
            bytes += shard.bytes;
            kl_sum += shard.kl_sum;
            kl_tokens += shard.kl_tokens;
        }
        unsealed_rows = reader.held_rows() - sealed_rows;
        has_writer = reader.has_writer();
    }
    [[nodiscard]] double bytes_per_token() const {
        return tokens == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(tokens);
    }
};

const char* direction_of(const StoreManifest& manifest) {
    return manifest.format == StoreFormat::sampled ? "stored_teacher" : "teacher_stored";
}

json::object inspection(const StoreReader& reader, const Figures& figures, const StoreError* error) {
    const StoreManifest& manifest = reader.manifest();
    json::object report;
    report["folder"] = reader.folder().string();
    report["manifest"] = write_fields(manifest);
    report["rows"] = manifest.rows;
    report["sealed_rows"] = figures.sealed_rows;
    report["unsealed_rows"] = figures.unsealed_rows;
    report["has_writer"] = figures.has_writer;
    report["shards"] = manifest.shard_count();
    report["sealed_shards"] = figures.sealed_shards;
    report["tokens"] = figures.tokens;
    report["bytes"] = figures.bytes;
    report["bytes_per_token"] = figures.bytes_per_token();
    report["full_f16_bytes_per_token"] = manifest.vocabulary * 2;
    report["kl"] = nullptr;
    if (figures.kl_tokens > 0) {
        report["kl"] = json::object{{"direction", direction_of(manifest)},
                                    {"mean", figures.kl_sum / static_cast<double>(figures.kl_tokens)},
                                    {"tokens", figures.kl_tokens}};
    }
    report["against"] = nullptr;
    if (error != nullptr) {
        report["against"] = json::object{{"tokens", error->tokens},
                                         {"kl_teacher_stored", error->kl_teacher_stored},
                                         {"kl_stored_teacher", error->kl_stored_teacher}};
    }
    return report;
}

/// "outputs y [10], h [32]"
std::string outputs_text(const StoreManifest& manifest) {
    std::string text = "outputs ";
    for (const StoredTensor& tensor : manifest.tensors) {
        text +=
            (&tensor == &manifest.tensors.front() ? "" : ", ") + tensor.name + " [" + joined(tensor.shape, ", ") + "]";
    }
    return text;
}

std::string format_text(const StoreManifest& manifest) {
    std::string text = to_string(manifest.format);
    text += manifest.k != 0 ? ", k " + std::to_string(manifest.k) : "";
    text += manifest.p != 0 ? ", p " + number_text(manifest.p) : "";
    text += manifest.samples != 0 ? ", " + std::to_string(manifest.samples) + " draws" : "";
    if (manifest.format != StoreFormat::sampled) {
        text += std::string(", ") + to_string(manifest.values);
    }
    if (manifest.format == StoreFormat::tensors) {
        return text + ", " + outputs_text(manifest);
    }
    return text + ", vocabulary " + std::to_string(manifest.vocabulary);
}

std::string inspection_text(const StoreReader& reader, const Figures& figures, const StoreError* error) {
    const StoreManifest& manifest = reader.manifest();
    const bool of_samples = manifest.format == StoreFormat::tensors;
    std::string text = line("format", format_text(manifest));
    text += line("teacher", manifest.teacher_name.empty() ? "not named" : manifest.teacher_name);
    text += line("dataset",
                 std::to_string(manifest.rows) +
                     (of_samples ? " samples, "
                                 : " rows of at most " + std::to_string(manifest.sequence_length) + " positions, ") +
                     manifest.dataset_hash);
    text += line("sealed", std::to_string(figures.sealed_rows) + " of " + std::to_string(manifest.rows) + " rows in " +
                               std::to_string(figures.sealed_shards) + " of " + std::to_string(manifest.shard_count()) +
                               " shards" + (of_samples ? "" : ", " + std::to_string(figures.tokens) + " tokens"));
    if (figures.unsealed_rows > 0) {
        text +=
            line("unsealed", std::to_string(figures.unsealed_rows) + " whole rows, which can be read like the others");
    }
    if (figures.sealed_rows + figures.unsealed_rows < manifest.rows) {
        const std::string missing = std::to_string(manifest.rows - figures.sealed_rows - figures.unsealed_rows);
        text += line("missing",
                     missing + (figures.has_writer ? " rows, not counting unsealed ones: a process writes this store"
                                                   : " rows: distilld generate SPEC --store " +
                                                         reader.folder().string() + " adds them"));
    }
    if (figures.tokens > 0 && of_samples) {
        text += line("size",
                     size_text(figures.bytes) + ", " + short_number(figures.bytes_per_token()) + " bytes per sample");
    } else if (figures.tokens > 0) {
        const double saved = static_cast<double>(manifest.vocabulary * 2) / figures.bytes_per_token();
        text += line("size", size_text(figures.bytes) + ", " + short_number(figures.bytes_per_token()) +
                                 " bytes per token: 1/" + short_number(saved) + " of all logits in f16");
    }
    if (figures.kl_tokens > 0) {
        const bool sampled = manifest.format == StoreFormat::sampled;
        text += line("error", "KL(" + std::string(sampled ? "stored, teacher" : "teacher, stored") + ") " +
                                  short_number(figures.kl_sum / static_cast<double>(figures.kl_tokens)) +
                                  " nats per token, measured on " + std::to_string(figures.kl_tokens) +
                                  " tokens when they were stored");
    }
    if (error != nullptr) {
        text += line("against", "KL(teacher, stored) " + short_number(error->kl_teacher_stored) +
                                    ", KL(stored, teacher) " + short_number(error->kl_stored_teacher) +
                                    " nats per token over " + std::to_string(error->tokens) + " tokens");
    }
    return text;
}

int inspect(const StoreCommand& command) {
    const auto reader = open_store_reader(command.folder);
    if (!reader) {
        return fail(reader.error());
    }
    StoreError error;
    if (!command.against.empty()) {
        const auto full = open_store_reader(command.against);
        if (!full) {
            return fail(full.error());
        }
        const auto measured = measure_error(**reader, **full, command.max_rows);
        if (!measured) {
            return fail(measured.error());
        }
        error = *measured;
    }
    const Figures figures(**reader);
    const StoreError* compared = command.against.empty() ? nullptr : &error;
    print(command.json ? to_text(inspection(**reader, figures, compared)) + "\n"
                       : inspection_text(**reader, figures, compared));
    return kDone;
}

json::array texts(const std::vector<std::string>& list) {
    return json::array(list.begin(), list.end());
}

int verify(const StoreCommand& command) {
    const auto result = verify_store(command.folder);
    if (!result) {
        return fail(result.error());
    }
    const bool complete = result->defects.empty() && result->rows == result->dataset_rows;
    if (command.json) {
        json::object report;
        report["whole"] = complete;
        report["dataset_rows"] = result->dataset_rows;
        report["unsealed_rows"] = result->unsealed_rows;
        report["shards"] = result->shards;
        report["rows"] = result->rows;
        report["tokens"] = result->tokens;
        report["defects"] = texts(result->defects);
        report["unsealed"] = texts(result->unsealed);
        report["foreign"] = texts(result->foreign);
        print(to_text(report) + "\n");
    } else {
        for (const auto& defect : result->defects) {
            print(defect + "\n");
        }
        if (!result->unsealed.empty()) {
            print("unsealed: " + std::to_string(result->unsealed_rows) + " whole rows in " +
                  std::to_string(result->unsealed.size()) + (result->unsealed.size() == 1 ? " file" : " files") +
                  " of shards that are not sealed yet\n");
        }
        for (const auto& file : result->foreign) {
            print(file + ": is not a file of the store\n");
        }
        const std::string of = complete ? "" : " of " + std::to_string(result->dataset_rows);
        print((complete ? "whole: " : (result->defects.empty() ? "incomplete: " : "damaged: ")) +
              std::to_string(result->shards) + " shards, " + std::to_string(result->rows) + " whole rows" + of + ", " +
              std::to_string(result->tokens) + " tokens\n");
    }
    return result->defects.empty() ? kDone : kFailed;
}

int write_lines(const StoreCommand& command, StoreReader& reader) {
    const bool to_stdout = command.lines_file == "-";
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(nullptr, &std::fclose);
    if (!to_stdout) {
        opened.reset(std::fopen(command.lines_file.c_str(), "we"));
        if (!opened) {
            return fail(io_error(command.lines_file + ": cannot open: " + std::generic_category().message(errno)));
        }
    }
    std::FILE* const file = to_stdout ? stdout : opened.get();
    const auto written = [&](bool good) -> Result<void> {
        return good ? Result<void>()
                    : write_error(command.lines_file + ": cannot write: " + std::generic_category().message(errno),
                                  errno);
    };
    const std::uint64_t end = command.rows == 0 ? reader.manifest().rows : command.first_row + command.rows;
    auto done = write_store_lines(reader, command.first_row, end, [&](const std::string& text) {
        return written(std::fwrite(text.data(), 1, text.size(), file) == text.size());
    });
    done = done ? written(std::fflush(file) == 0) : done;
    return done ? kDone : fail(done.error());
}

int show_new_store(const StoreCommand& command) {
    const auto reader = open_store_reader(command.to);
    if (!reader) {
        return fail(reader.error());
    }
    const Figures figures(**reader);
    print(command.json ? to_text(inspection(**reader, figures, nullptr)) + "\n"
                       : inspection_text(**reader, figures, nullptr));
    return kDone;
}

StoreExport by_this_program(StoreExport wanted) {
    wanted.generator = std::string("distilld ") + kVersion;
    return wanted;
}

int export_to(const StoreCommand& command, StoreReader& reader) {
    if (const auto done = export_store(reader, command.to, by_this_program(command.wanted)); !done) {
        return fail(done.error());
    }
    return show_new_store(command);
}

int import_from(const StoreCommand& command) {
    StoreImport wanted;
    wanted.file = command.file;
    wanted.dataset = command.dataset;
    wanted.to = command.to;
    wanted.bos = command.bos;
    wanted.store = by_this_program(command.wanted);
    if (const auto done = import_kld_file(wanted); !done) {
        return fail(done.error());
    }
    return show_new_store(command);
}

}  // namespace

int execute(const StoreCommand& command) {
    if (command.action == StoreCommand::Action::inspect) {
        return inspect(command);
    }
    if (command.action == StoreCommand::Action::verify) {
        return verify(command);
    }
    if (command.action == StoreCommand::Action::import_) {
        return import_from(command);
    }
    const auto reader = open_store_reader(command.folder);
    if (!reader) {
        return fail(reader.error());
    }
    return command.to.empty() ? write_lines(command, **reader) : export_to(command, **reader);
}

}  // namespace distilld::cli
