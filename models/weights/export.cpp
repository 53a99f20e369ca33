#include "models/weights/export.hpp"

#include "base/files.hpp"
#include "base/open_file.hpp"
#include "models/weights/finite.hpp"

namespace distilld::models {

namespace fs = std::filesystem;

Result<void> write_model_folder(const fs::path& folder, const ModelExport& model) {
    if (model.adapter) {
        return write_adapter_folder(folder, model);
    }
    if (Result<void> made = make_folders(folder); !made) {
        return made;
    }
    const Result<NamedTensors> tensors = exported_tensors(folder, model);
    Result<void> done = tensors ? Result<void>() : tensors.error();
    if (done && model.ternary) {
        done = write_ternary_folder(folder / kTernaryFolder, model);
    }
    return done ? write_model_files(folder, *tensors, model) : done;
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

Result<void> write_model_files(const fs::path& folder, const NamedTensors& tensors, const ModelExport& model) {
    if (Result<void> made = make_folders(folder); !made) {
        return made;
    }
    Result<void> done = write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
    if (done) {
        done = write_file_atomically(folder / "generation_config.json", model.generation_config_json);
    }
    if (done && !model.tokenizer_folder.empty()) {
        done = copy_tokenizer_files(model.tokenizer_folder, folder);
    }
    if (done) {
        done = write_file_atomically(folder / "config.json", model.config_json);
    }
    return done;
}

Result<void> copy_tokenizer_files(const fs::path& from_folder, const fs::path& to_folder) {
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
                             "merges.txt", "tokenizer.model", "chat_template.jinja", "added_tokens.json"}) {
        std::error_code code;
        if (!fs::exists(from_folder / name, code) || fs::equivalent(from_folder / name, to_folder / name, code)) {
            continue;
        }
        if (const Result<void> copied = copy_file_atomically(from_folder / name, to_folder / name); !copied) {
            return copied.error();
        }
    }
    return {};
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
