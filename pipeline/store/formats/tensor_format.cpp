#include "pipeline/store/formats/tensor_format.hpp"

#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "pipeline/core/target_rows.hpp"

namespace distilld {
namespace {

ElementType stored_type(StoreValues values) {
    switch (values) {
        case StoreValues::f32:
            return ElementType::f32;
        case StoreValues::bf16:
            return ElementType::bf16;
        default:
            return ElementType::f16;
    }
}

/// Appends the `count` elements from `first` on. Returns why they cannot be kept; empty if they are.
std::optional<std::string> append_elements(const SampleTensor& tensor, std::size_t first, std::size_t count,
                                           ElementType type, std::vector<std::byte>& bytes) {
    const ArrayView& values = tensor.values;
    const std::size_t size = element_size(values.type);
    const std::size_t before = bytes.size();
    if (values.type == type) {
        const auto from = values.bytes.subspan(first * size, count * size);
        bytes.insert(bytes.end(), from.begin(), from.end());
    } else {
        append_converted(bytes, values, first, count, type);
    }
    const ArrayView kept{type, std::span<const std::byte>(bytes).subspan(before)};
    for (std::size_t i = 0; i < count; ++i) {
        if (!std::isfinite(element_as_float(kept, i))) {
            const double value = element_as_double(values, first + i);
            return "element " + std::to_string(i) + " of output " + tensor.name + " is " + std::to_string(value) +
                   (std::isfinite(value) ? ", which is too large for the store's values: set /teacher/store_values to "
                                           "f32 or bf16"
                                         : "");
        }
    }
    return std::nullopt;
}

}  // namespace

std::vector<StoreStream> tensor_streams(const StoreManifest& manifest) {
    std::vector<StoreStream> streams;
    streams.reserve(manifest.tensors.size());
    for (const StoredTensor& tensor : manifest.tensors) {
        streams.push_back({"output." + tensor.name, stored_type(manifest.values), element_count(tensor)});
    }
    return streams;
}

Result<std::vector<StoredRow>> encode_tensors(const StoreManifest& manifest, const TokenBatch& batch,
                                              const TeacherTargets& targets) {
    const auto refused = [](const std::string& why) { return invalid_input("the store: " + why); };
    if (batch.row_ids.size() != batch.rows) {
        return refused("the batch does not say which rows of the dataset it has");
    }
    if (targets.kind != TeacherTargets::Kind::tensors || targets.rows != batch.rows || batch.columns != 1) {
        return refused("format tensors holds the outputs for samples, and the teacher gives other targets");
    }
    std::vector<StoredRow> rows(batch.rows);
    for (std::size_t b = 0; b < rows.size(); ++b) {
        if (batch.row_ids[b] >= manifest.rows) {
            return refused("row " + std::to_string(batch.row_ids[b]) + " is outside the dataset of " +
                           std::to_string(manifest.rows));
        }
        rows[b].row = batch.row_ids[b];
        rows[b].tokens = 1;
        rows[b].mask.assign(1, std::byte{1});
        rows[b].streams.resize(manifest.tensors.size());
    }
    const ElementType type = stored_type(manifest.values);
    for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
        const StoredTensor& wanted = manifest.tensors[i];
        const std::size_t count = element_count(wanted);
        const SampleTensor* tensor = find_tensor(targets.tensors, wanted.name);
        if (tensor == nullptr || tensor->sample_shape != wanted.shape ||
            tensor->values.bytes.size() != rows.size() * count * element_size(tensor->values.type)) {
            return refused("output " + wanted.name +
                           (tensor == nullptr ? " is missing" : " does not have the shape of the store"));
        }
        for (std::size_t b = 0; b < rows.size(); ++b) {
            if (auto defect = append_elements(*tensor, b * count, count, type, rows[b].streams[i])) {
                return refused("row " + std::to_string(rows[b].row) + ": " + *defect);
            }
        }
    }
    return rows;
}

Result<TeacherTargets> decode_tensors(const StoreManifest& manifest, const TokenBatch& batch,
                                      std::span<const StoredRowView> rows, TargetBuffers& buffers) {
    for (const StoredRowView& row : rows) {
        if (row.tokens != 1) {
            return invalid_input("the store: row " + std::to_string(row.row) + " has no sample");
        }
    }
    TeacherTargets targets;
    targets.kind = TeacherTargets::Kind::tensors;
    targets.rows = batch.rows;
    targets.columns = batch.columns;
    targets.held_bytes = rows.size() * max_token_bytes(manifest);
    auto owner = buffers.take(targets.held_bytes);
    std::byte* at = owner.get();
    for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
        const std::byte* const first = at;
        for (const StoredRowView& row : rows) {
            std::memcpy(at, row.streams[i].data(), row.streams[i].size());
            at += row.streams[i].size();
        }
        targets.tensors.push_back(
            {manifest.tensors[i].name, manifest.tensors[i].shape, {stored_type(manifest.values), {first, at}}});
    }
    targets.owner = std::move(owner);
    return targets;
}

}  // namespace distilld
