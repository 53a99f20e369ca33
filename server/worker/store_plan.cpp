#include "server/worker/store_plan.hpp"

#include "base/enum_names.hpp"
#include "base/time.hpp"
#include "distilld_version.hpp"

namespace distilld {

std::uint32_t asked_length(const DatasetSpec& spec, const Dataset& rows) {
    const bool longer = rows.teacher_documents() != nullptr && spec.teacher_sequence_length != 0;
    return longer ? spec.teacher_sequence_length : spec.sequence_length;
}

ReadDocument read_of_teacher(const Dataset& rows) {
    const Dataset* own = rows.teacher_documents();
    return own == nullptr ? ReadDocument() : [own](std::uint64_t document) { return own->batch(0, {document}); };
}

void use_tokenizer(StoredData& data, const TeacherTokenizer* teacher) {
    if (teacher != nullptr) {
        data.tokenizer_hash = teacher->hash;
        data.vocabulary = teacher->choice.tokenizer->vocabulary_size();
        data.tokenizer = teacher->signs;
        data.alignment = teacher->alignment;
    }
}

StoreManifest wanted_manifest(const TeacherSpec& spec, const StoredData& data, const TeacherInfo& info) {
    StoreManifest manifest;
    const StoreFormat exact = info.top_k != 0 ? StoreFormat::topk : StoreFormat::full;
    manifest.format = enum_from_string<StoreFormat>(spec.store_format).value_or(exact);
    if (info.kind == TeacherTargets::Kind::tensors) {
        manifest.format = StoreFormat::tensors;
        for (const SampleTensor& tensor : info.tensors) {
            manifest.tensors.push_back({tensor.name, tensor.sample_shape});
        }
    }
    manifest.values = enum_from_string<StoreValues>(spec.store_values).value_or(StoreValues::f16);
    manifest.k = spec.top_k != 0 ? spec.top_k : kDefaultStoredEntries;
    manifest.p = spec.store_p;
    manifest.samples = spec.store_samples;
    manifest.vocabulary = info.vocabulary_size != 0 ? info.vocabulary_size : data.vocabulary;
    manifest.rows = data.dataset->asked_about().row_count();
    manifest.sequence_length = data.sequence_length;
    manifest.dataset_hash = data.dataset->asked_about().hash();
    manifest.tokenizer_hash = data.tokenizer_hash;
    manifest.teacher = info.fingerprint;
    manifest.teacher_name = info.description;
    manifest.teacher_tokenizer = info.tokenizer.hash;
    manifest.generator = std::string("distilld ") + kVersion;
    return manifest;
}

std::chrono::nanoseconds lease_expiry(const TeacherSpec& spec) {
    return std::chrono::nanoseconds(std::chrono::seconds(30)) +
           2 * std::chrono::nanoseconds(from_seconds(spec.timeout_secs));
}

StoreWish wish_of(const TeacherSpec& spec, const StoredData& data) {
    StoreWish wish;
    wish.dataset_hash = data.dataset->asked_about().hash();
    wish.rows = data.dataset->asked_about().row_count();
    wish.sequence_length = data.sequence_length;
    wish.vocabulary = data.vocabulary;
    wish.top_k = spec.top_k;
    wish.tokenizer_hash = data.tokenizer_hash;
    wish.outputs = spec.outputs;
    return wish;
}

Result<void> check_stored_format(const StoreManifest& stored, const TeacherSpec& spec) {
    const auto format = enum_from_string<StoreFormat>(spec.store_format);
    if (format && *format != stored.format) {
        return invalid_input("/teacher/store_format: is " + spec.store_format + ", but the store in " + spec.store +
                             " is " + to_string(stored.format));
    }
    return {};
}

}  // namespace distilld
