#include "server/worker/export/export_files.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "base/files/files.hpp"
#include "base/files/folder_fence.hpp"
#include "base/files/open_file.hpp"
#include "base/sha256.hpp"
#include "models/weights/export.hpp"
#include "pipeline/data/tokenizer/tokenizer.hpp"
#include "server/worker/export_owner.hpp"
#include "server/worker/run_plan.hpp"

namespace distilld {

namespace fs = std::filesystem;

namespace {

constexpr const char* kStagePrefix = ".distilld-export-";

/// Writes the model's files and returns their names, those that make a folder a model last.
Result<std::vector<fs::path>> write_files(const StudentSnapshot& snapshot, const PreparedRun& run,
                                          const fs::path& folder) {
    Result<std::vector<fs::path>> files = snapshot.write_model(folder);
    // If text was read byte by byte, the byte tokenizer's files must go beside the weights.
    const auto& lora = run.spec.student.lora;
    for (const auto& [written, name] : {std::pair(true, ""), std::pair(lora && lora->merge, "merged"),
                                        std::pair(run.spec.student.quantization == Quantization::ternary, "ternary")}) {
        if (files && run.exports_byte_tokenizer && written) {
            const auto more = write_byte_tokenizer(folder / name);
            if (!more) {
                return more.error();
            }
            files->insert(files->end(), more->begin(), more->end());
        }
    }
    if (!files) {
        return files;
    }
    std::set<fs::path> names;
    for (const fs::path& path : *files) {
        names.insert(path.lexically_relative(folder));
    }
    std::vector<fs::path> ordered(names.begin(), names.end());
    std::ranges::stable_partition(ordered, [](const fs::path& name) {
        return name.filename() != "config.json" && name.filename() != "adapter_config.json";
    });
    return ordered;
}

/// Removes what an interrupted export has left.
Result<void> remove_stages(const fs::path& output) {
    const Result<std::vector<std::string>> names = names_in(output);
    if (!names) {
        return names.error();
    }
    for (const std::string& name : *names) {
        if (Result<void> gone = name.starts_with(kStagePrefix) ? remove_tree(output / name) : Result<void>(); !gone) {
            return gone;
        }
    }
    return {};
}

Result<void> put_in_place(const fs::path& stage, const fs::path& output, const std::vector<fs::path>& names) {
    std::set<fs::path> folders{output};
    for (const fs::path& name : names) {
        const fs::path target = output / name;
        if (folders.insert(target.parent_path()).second) {
            if (Result<void> made = make_folders(target.parent_path()); !made) {
                return made;
            }
        }
        if (Result<void> renamed = rename_entry(stage / name, target); !renamed) {
            return renamed;
        }
    }
    for (const fs::path& folder : folders) {
        if (Result<void> synced = sync_folder(folder); !synced) {
            return synced;
        }
    }
    return {};
}

/// The hash of the weights, after all files are in place.
Result<std::string> write_staged(const StudentSnapshot& snapshot, PreparedRun& run, const fs::path& stage) {
    const fs::path output(run.spec.output);
    ExportRecord record{identity_of(run), run.total_steps};
    FolderFence& fence = *run.output_fence();
    const Result<void> begun = fence.commit([&] {
        const Result<void> removed = remove_stages(output);
        return removed ? write_export_owner(output, record) : removed;
    });
    if (!begun) {
        return begun.error();
    }
    const Result<std::vector<fs::path>> names = write_files(snapshot, run, stage);
    if (!names) {
        return names.error();
    }
    std::set<std::string> listed{kExportOwnerFile};
    for (const fs::path& name : *names) {
        listed.insert(name.string());
    }
    record.files.assign(listed.begin(), listed.end());
    const char* weights = run.spec.student.lora ? "adapter_model.safetensors" : "model.safetensors";
    const Result<std::string> hash = sha256_file(stage / weights);
    if (!hash) {
        return hash;
    }
    record.weights_sha256 = *hash;
    const Result<void> done = fence.commit([&]() -> Result<void> {
        Result<void> placed = run.spec.student.lora ? models::remove_model_files(output) : Result<void>();
        if (placed) {
            placed = put_in_place(stage, output, *names);
        }
        return placed ? write_export_owner(output, record) : placed;
    });
    return done ? hash : Result<std::string>(done.error());
}

}  // namespace

fs::path program_export_folder(PreparedRun& run) {
    return fs::path(run.spec.output) / (kStagePrefix + run.output_fence()->holder() + "-eval");
}

Result<void> write_program_export(const StudentSnapshot& snapshot, PreparedRun& run) {
    const Result<void> begun = run.output_fence()->commit([&] { return remove_stages(run.spec.output); });
    if (!begun) {
        return begun;
    }
    const fs::path folder = program_export_folder(run);
    const Result<std::vector<fs::path>> names = write_files(snapshot, run, folder);
    if (!names) {
        static_cast<void>(remove_tree(folder));  // the first error counts
        return names.error();
    }
    return {};
}

Result<std::string> write_export(const StudentSnapshot& snapshot, PreparedRun& run) {
    const fs::path output(run.spec.output);
    const fs::path stage = output / (kStagePrefix + run.output_fence()->holder());
    Result<std::string> hash = write_staged(snapshot, run, stage);
    const Result<void> removed = remove_tree(stage);
    if (!hash) {  // about the place that the user knows
        Error error = hash.error();
        const std::string staged = stage.string();
        for (auto at = error.message.find(staged); at != std::string::npos; at = error.message.find(staged)) {
            error.message.replace(at, staged.size(), output.string());
        }
        return error;
    }
    return removed ? hash : Result<std::string>(removed.error());
}

}  // namespace distilld
