#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld::models {

struct NamedTensor {
    std::string name;
    torch::Tensor tensor;
};
using NamedTensors = std::vector<NamedTensor>;

/// One safetensors file, open for reading (https://huggingface.co/docs/safetensors): u64 little-endian header length,
/// JSON header, data. Everything the header claims is checked against the file when it is opened: header of at most
/// 100 MB, known dtypes, ranges inside the file without overlap or hole, shape × element size == range. Errors name
/// the file and what is wrong. Dtypes: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL.
class SafetensorsFile {
  public:
    static Result<SafetensorsFile> open(const std::filesystem::path& path);

    SafetensorsFile(SafetensorsFile&& other) noexcept;
    SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;
    SafetensorsFile(const SafetensorsFile&) = delete;
    SafetensorsFile& operator=(const SafetensorsFile&) = delete;
    ~SafetensorsFile();

    /// In the order of the data.
    [[nodiscard]] std::vector<std::string> names() const;
    [[nodiscard]] bool contains(const std::string& name) const;
    /// The header's `__metadata__`.
    [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }
    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

    /// Dtype and sizes without reading data.
    struct Entry {
        torch::ScalarType dtype = torch::kFloat;
        std::vector<std::int64_t> shape;
        std::uint64_t begin = 0;  ///< offset in the file
        std::uint64_t bytes = 0;
    };
    /// nullptr when there is no such tensor.
    [[nodiscard]] const Entry* find(const std::string& name) const;

    /// An owned, contiguous copy on the CPU, in the file's dtype. Any thread.
    [[nodiscard]] Result<torch::Tensor> tensor(const std::string& name) const;

  private:
    SafetensorsFile(std::filesystem::path path, int descriptor);
    Result<void> read_header();

    std::filesystem::path path_;
    int descriptor_ = -1;
    std::map<std::string, Entry> entries_;
    std::map<std::string, std::string> metadata_;
};

/// Writes a safetensors file atomically (atomic_file.hpp). Layout as the Python library's: tensors by descending dtype
/// rank, then name; header padded with spaces so that data starts 8-byte aligned. The same tensors give the same
/// bytes. Tensors may lie on any device and need not be contiguous. Duplicate names and other dtypes are refused.
Result<void> write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                               const std::map<std::string, std::string>& metadata = {});

}  // namespace distilld::models
