#include "models/weights/export.hpp"

#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "models/network/parameter.hpp"

namespace distilld::models {

namespace fs = std::filesystem;

Result<ExportedPaths> write_model_folder(const fs::path& folder, const ModelExport& model) {
    if (model.adapter) {
        return write_adapter_folder(folder, model);
    }
    if (Result<void> made = make_folders(folder); !made) {
        return made.error();
    }
    const Result<NamedTensors> tensors = exported_tensors(folder, model);
    if (!tensors) {
        return tensors.error();
    }
    Result<ExportedPaths> beside = ExportedPaths();
    if (model.ternary) {
        beside = write_ternary_folder(folder / kTernaryFolder, model);
    }
    return beside ? and_those(*std::move(beside), write_model_files(folder, *tensors, model)) : beside;
}

Result<ExportedPaths> and_those(ExportedPaths paths, Result<ExportedPaths> more) {
    if (more) {
        more->insert(more->end(), paths.begin(), paths.end());
    }
    return more;
}

Result<NamedTensors> exported_tensors(const fs::path& folder, const ModelExport& model) {
    NamedTensors tensors;
    tensors.reserve(model.parameters.size());
    for (const Parameter& parameter : model.parameters) {
        tensors.push_back({parameter.name, parameter.master.detach().to(parameter.saved)});
        if (!all_finite(tensors.back().tensor)) {
            return invalid_input(folder.string() + ": not exported: " + parameter.name +
                                 " holds numbers that are not finite as " + dtype_name(parameter.saved));
        }
    }
    return tensors;
}

Result<ExportedPaths> write_model_files(const fs::path& folder, const NamedTensors& tensors, const ModelExport& model) {
    if (Result<void> made = make_folders(folder); !made) {
        return made.error();
    }
    Result<ExportedPaths> tokenizer = ExportedPaths();
    Result<void> done = write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
    if (done) {
        done = write_file_atomically(folder / "generation_config.json", model.generation_config_json);
    }
    if (done && !model.tokenizer_folder.empty()) {
        tokenizer = copy_tokenizer_files(model.tokenizer_folder, folder);
        done = tokenizer ? Result<void>() : tokenizer.error();
    }
    if (done) {
        done = write_file_atomically(folder / "config.json", model.config_json);
    }
    if (!done) {
        return done.error();
    }
    return and_those({folder / "model.safetensors", folder / "generation_config.json", folder / "config.json"},
                     std::move(tokenizer));
}

Result<ExportedPaths> copy_tokenizer_files(const fs::path& from_folder, const fs::path& to_folder) {
    ExportedPaths written;
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
                             "merges.txt", "tokenizer.model", "chat_template.jinja", "added_tokens.json"}) {
        std::error_code code;
        if (!fs::exists(from_folder / name, code)) {
            continue;
        }
        written.push_back(to_folder / name);
        if (fs::equivalent(from_folder / name, to_folder / name, code)) {
            continue;
        }
        if (const Result<void> copied = copy_file_atomically(from_folder / name, to_folder / name); !copied) {
            return copied.error();
        }
    }
    return written;
}

const char* dtype_name(torch::ScalarType type) noexcept {
    switch (type) {
        case torch::kBFloat16:
            return "bfloat16";
        case torch::kHalf:
            return "float16";
        default:
            return "float32";
    }
}

}  // namespace distilld::models
