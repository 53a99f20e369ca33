#include "server/worker/training_data.hpp"

#include "base/sha256.hpp"
#include "pipeline/data/packed_dataset.hpp"

namespace distilld {

namespace {

DatasetOptions options_of(const DatasetSpec& spec, const TokenizerChoice& choice, std::uint32_t vocabulary_size) {
    DatasetOptions options;
    options.sequence_length = spec.sequence_length;
    options.packing = spec.packing == Packing::joined;
    options.vocabulary_size = vocabulary_size;
    options.no_tokenizer_reason = choice.refusal;
    return options;
}

}  // namespace

std::string shown(const std::vector<std::string>& files) {
    return files.size() == 1 ? files.front() : std::to_string(files.size()) + " files";
}

Result<std::shared_ptr<const MixedDataset>> load_mixed_rows(const JobSpec& spec, const TokenizerChoice& choice,
                                                            std::uint32_t vocabulary_size) {
    DatasetOptions options = options_of(spec.dataset, choice, vocabulary_size);
    for (const auto& [name, teacher] : spec.teachers) {
        options.teachers.push_back(name);
    }
    Result<std::shared_ptr<const MixedDataset>> rows =
        load_mixed_dataset(spec.dataset.train.front(), choice.tokenizer.get(), options);
    if (!rows) {
        return Error{rows.error().kind, "/dataset/train: " + rows.error().message};
    }
    if (spec.dataset.packing == Packing::documents) {
        return pack_documents(**rows, spec.dataset.sequence_length);
    }
    return rows;
}

Result<std::shared_ptr<const Dataset>> load_rows(const DatasetSpec& spec, const std::string& field,
                                                 const std::vector<std::string>& files, const TokenizerChoice& choice,
                                                 std::uint32_t vocabulary_size) {
    const DatasetOptions options = options_of(spec, choice, vocabulary_size);
    if (files.size() != 1) {
        return invalid_input("/dataset/" + field + ": is not one file");
    }
    Result<std::unique_ptr<Dataset>> rows = load_jsonl_dataset(files.front(), choice.tokenizer.get(), options);
    if (!rows) {
        return Error{rows.error().kind, "/dataset/" + field + ": " + rows.error().message};
    }
    std::shared_ptr<const Dataset> loaded(std::move(*rows));
    return spec.packing == Packing::documents ? pack_documents(std::move(loaded), spec.sequence_length) : loaded;
}

Result<std::string> tokenizer_hash(const Dataset& dataset, const TokenizerChoice& choice) {
    if (!dataset.has_text()) {
        return std::string();
    }
    return choice.folder.empty() ? Result<std::string>("bytes") : sha256_file(choice.folder / "tokenizer.json");
}

}  // namespace distilld
