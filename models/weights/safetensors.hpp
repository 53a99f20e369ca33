#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/mapped_file.hpp"

namespace distilld::models {

/// The dtypes that weights are read in: F32, F16 and BF16.
[[nodiscard]] constexpr bool is_weight_type(torch::ScalarType type) noexcept {
    return type == torch::kFloat || type == torch::kHalf || type == torch::kBFloat16;
}

struct NamedTensor {
    std::string name;
    torch::Tensor tensor;
};
using NamedTensors = std::vector<NamedTensor>;

/// One safetensors file, open for reading. open() checks everything that the header claims against the file
/// (base/safetensors_header.hpp). Errors name the file and what is wrong.
class SafetensorsFile {
  public:
    static Result<SafetensorsFile> open(const std::filesystem::path& path);

    /// In the order of the data.
    [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
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
    /// nullptr if there is no such tensor.
    [[nodiscard]] const Entry* find(const std::string& name) const;

    /// An owned, contiguous copy on the CPU, in the file's dtype. Any thread.
    [[nodiscard]] Result<torch::Tensor> tensor(const std::string& name) const;

    /// The tensor in the file itself, which it keeps mapped. Do not write to it, and use it only for a file that no
    /// longer changes (base/files/mapped_file.hpp). One thread at a time. Not for BOOL; an error if its offset in the
    /// file is not a multiple of its element size.
    [[nodiscard]] Result<torch::Tensor> mapped_tensor(const std::string& name) const;

  private:
    SafetensorsFile(std::filesystem::path path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}
    Result<void> read_header();

    std::filesystem::path path_;
    Descriptor file_;
    std::vector<std::string> names_;
    std::map<std::string, Entry> entries_;
    std::map<std::string, std::string> metadata_;
    mutable std::shared_ptr<const MappedFile> mapped_;  ///< from the first mapped_tensor() on
};

/// Writes a safetensors file atomically (base/files/files.hpp), in the layout of write_safetensors_header(). The same
/// tensors give the same bytes. Tensors may be on any device and need not be contiguous. Refuses duplicate names and
/// other dtypes.
Result<void> write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                               const std::map<std::string, std::string>& metadata = {});

}  // namespace distilld::models
