#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/weights/safetensors.hpp"

namespace distilld::models {

/// A prefix that tensor names in files may lack.
struct NamePrefix {
    std::string prefix;  ///< empty: no prefix
    std::string except;  ///< a tensor that never has the prefix
};

/// The tensors of a Hugging Face folder: in model.safetensors, or in the shards that model.safetensors.index.json
/// names. Errors name the file. Any thread.
class WeightFolder {
  public:
    /// Opens the files, and checks their headers and the index against them; reads no tensor. If no tensor has
    /// `names.prefix`, it is prepended to the names in the files.
    static Result<WeightFolder> open(const std::filesystem::path& folder, const NamePrefix& names = {});

    [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
    /// By name.
    [[nodiscard]] std::vector<std::string> names() const;
    /// The file that holds the tensor; nullptr if none does.
    [[nodiscard]] const SafetensorsFile* file_of(const std::string& name) const;
    /// The tensor's name in that file.
    [[nodiscard]] const std::string& name_in_file(const std::string& name) const;
    /// SHA-256 of the files' SHA-256s, in the order of file names. Reads all files.
    [[nodiscard]] Result<std::string> hash() const;

  private:
    explicit WeightFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}
    Result<void> open_single(const std::filesystem::path& path);
    Result<void> open_shards(const std::filesystem::path& index);
    void put_in_front(const NamePrefix& names);

    std::filesystem::path folder_;
    std::vector<SafetensorsFile> files_;
    std::map<std::string, std::size_t> file_of_;    ///< tensor name -> index in files_
    std::map<std::string, std::string> shortened_;  ///< tensor name -> name in the file, if they differ
};

}  // namespace distilld::models
