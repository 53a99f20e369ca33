#include "pipeline/data/tensor_dataset.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/files/mapped_file.hpp"
#include "base/join.hpp"
#include "base/safetensors_header.hpp"
#include "base/sha256.hpp"

namespace distilld {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHashedAtOnce = std::size_t{16} << 20U;

struct NamedType {
    std::string_view name;
    ElementType type;
};
constexpr std::array kTypes{
    NamedType{"F64", ElementType::f64},   NamedType{"F32", ElementType::f32},      NamedType{"F16", ElementType::f16},
    NamedType{"BF16", ElementType::bf16}, NamedType{"I64", ElementType::i64},      NamedType{"I32", ElementType::i32},
    NamedType{"U8", ElementType::u8},     NamedType{"BOOL", ElementType::boolean},
};

/// A tensor of the dataset, and where its samples lie.
struct Column {
    SampleTensor form;  ///< without values
    const char* dtype = nullptr;
    std::size_t sample_bytes = 0;
    std::vector<std::span<const std::byte>> parts{};  ///< one per file
};

struct Part {
    std::uint64_t end = 0;  ///< the first sample of the next file
    MappedFile file;
};

class TensorDataset final : public Dataset {
  public:
    Result<void> add(const fs::path& path) {
        Result<MappedFile> file = MappedFile::open(path);
        if (!file) {
            return file.error();
        }
        const Result<SafetensorsHeader> header = parse_safetensors_header(file->bytes(), path);
        if (!header) {
            return header.error();
        }
        if (header->tensors.empty()) {
            return invalid_input(path.string() + ": has no tensors");
        }
        const bool first = parts_.empty();
        const std::uint64_t samples = samples_of(*header);
        std::size_t known = 0;
        for (const SafetensorsTensor& tensor : header->tensors) {
            const auto bytes = file->bytes().subspan(tensor.begin, tensor.bytes);
            if (Result<void> added = add(tensor, samples, bytes, first); !added) {
                return invalid_input(path.string() + ": tensor \"" + tensor.name + "\" " + added.error().message);
            }
            ++known;
        }
        if (known != columns_.size()) {
            return invalid_input(path.string() + ": has " + std::to_string(known) + " tensors, the first file has " +
                                 std::to_string(columns_.size()));
        }
        rows_ += samples;
        parts_.push_back({rows_, std::move(*file)});
        return {};
    }

    Result<void> finish(const std::function<bool()>& cancelled) {
        Sha256 sha;
        for (const auto& [name, column] : columns_) {
            sha.add(bytes_of(name + " " + column.dtype + " " + shape_text(column.form.sample_shape) + " × " +
                             std::to_string(rows_) + "\n"));
            for (std::span<const std::byte> part : column.parts) {
                while (!part.empty()) {
                    if (cancelled()) {
                        return Error{ErrorKind::cancelled, "reading the data was cancelled"};
                    }
                    const auto next = part.first(std::min(part.size(), kHashedAtOnce));
                    sha.add(next);
                    part = part.subspan(next.size());
                }
            }
        }
        hash_ = sha.hex();
        return {};
    }

    std::uint64_t row_count() const override { return rows_; }
    std::uint64_t token_count() const override { return rows_; }
    const std::string& hash() const override { return hash_; }
    std::uint32_t row_length(std::uint64_t) const override { return 1; }
    std::uint64_t target_tokens(std::uint64_t) const override { return 1; }

    TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const override {
        TokenBatch batch;
        batch.number = number;
        batch.rows = static_cast<std::uint32_t>(rows.size());
        batch.columns = 1;
        batch.input_ids.assign(rows.size(), 0);
        batch.labels.assign(rows.size(), 0);
        batch.lengths.assign(rows.size(), 1);
        batch.row_ids = rows;
        batch.target_tokens = rows.size();
        auto held = std::make_shared<std::vector<std::vector<std::byte>>>();
        held->reserve(columns_.size());
        for (const auto& [name, column] : columns_) {
            const auto& values = held->emplace_back(gather(column, rows));
            batch.tensors.push_back(column.form);
            batch.tensors.back().values.bytes = values;
        }
        batch.owner = std::move(held);
        return batch;
    }

  private:
    static std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

    static std::uint64_t samples_of(const SafetensorsHeader& header) {
        const auto& shape = header.tensors.front().shape;
        return shape.empty() ? 0 : static_cast<std::uint64_t>(shape.front());
    }

    Result<void> add(const SafetensorsTensor& tensor, std::uint64_t samples, std::span<const std::byte> bytes,
                     bool first) {
        if (tensor.shape.empty() || tensor.shape.front() <= 0) {
            return invalid_input("has the shape " + shape_text(tensor.shape) +
                                 ": its first dimension must count the samples, at least one");
        }
        if (static_cast<std::uint64_t>(tensor.shape.front()) != samples) {
            return invalid_input("has " + std::to_string(tensor.shape.front()) + " samples, another tensor has " +
                                 std::to_string(samples));
        }
        const auto type = std::ranges::find(kTypes, std::string_view(tensor.dtype->name), &NamedType::name);
        if (type == kTypes.end()) {
            return invalid_input(std::string("is ") + tensor.dtype->name + ", which is not supported: use I32");
        }
        Column column;
        column.form.name = tensor.name;
        column.form.sample_shape.assign(tensor.shape.begin() + 1, tensor.shape.end());
        column.form.values.type = type->type;
        column.dtype = tensor.dtype->name;
        column.sample_bytes = bytes.size() / samples;
        auto [found, is_new] = columns_.try_emplace(tensor.name, column);
        if (is_new && !first) {
            return invalid_input("is not in the first file");
        }
        const SampleTensor& known = found->second.form;
        if (known.values.type != type->type || known.sample_shape != column.form.sample_shape) {
            return invalid_input(std::string("has samples of ") + column.dtype + " " +
                                 shape_text(column.form.sample_shape) + ", in the first file they are " +
                                 found->second.dtype + " " + shape_text(known.sample_shape));
        }
        found->second.parts.push_back(bytes);
        return {};
    }

    [[nodiscard]] std::vector<std::byte> gather(const Column& column, const std::vector<std::uint64_t>& rows) const {
        std::vector<std::byte> values(rows.size() * column.sample_bytes);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (rows[i] >= rows_) {
                throw std::out_of_range("sample " + std::to_string(rows[i]) + " of " + std::to_string(rows_));
            }
            const auto part = std::ranges::upper_bound(parts_, rows[i], {}, &Part::end);
            const auto index = static_cast<std::size_t>(part - parts_.begin());
            const std::uint64_t begin = index == 0 ? 0 : parts_[index - 1].end;
            const auto from = column.parts[index].subspan((rows[i] - begin) * column.sample_bytes);
            if (column.sample_bytes > 0) {
                std::memcpy(values.data() + i * column.sample_bytes, from.data(), column.sample_bytes);
            }
        }
        return values;
    }

    std::map<std::string, Column> columns_;
    std::vector<Part> parts_;
    std::uint64_t rows_ = 0;
    std::string hash_;
};

}  // namespace

Result<std::shared_ptr<const Dataset>> load_tensor_dataset(std::span<const fs::path> files,
                                                           const std::function<bool()>& cancelled) {
    auto dataset = std::make_shared<TensorDataset>();
    for (const fs::path& path : files) {
        if (Result<void> added = dataset->add(path); !added) {
            return added.error();
        }
    }
    if (Result<void> finished = dataset->finish(cancelled); !finished) {
        return finished.error();
    }
    return std::shared_ptr<const Dataset>(std::move(dataset));
}

}  // namespace distilld
