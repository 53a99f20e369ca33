#include "server/teacher/served_adapters.hpp"

#include <utility>

#include "base/scope_exit.hpp"

namespace distilld::teacher {

namespace asio = boost::asio;

std::shared_ptr<models::LoadedAdapter> ServedAdapters::find(const std::string& name) const {
    const auto found = adapters_.find(name);
    return found == adapters_.end() ? nullptr : found->second;
}

std::vector<std::string> ServedAdapters::names() const {
    std::vector<std::string> names;
    for (const auto& [name, adapter] : adapters_) {
        if (adapter != nullptr) {
            names.push_back(name);
        }
    }
    return names;
}

asio::awaitable<Result<void>> ServedAdapters::load(std::string name, std::filesystem::path folder) {
    if (adapters_.contains(name)) {
        co_return invalid_input("the adapter '" + name +
                                "' is loaded already: unload it first, or choose another name");
    }
    if (adapters_.size() >= max_adapters_) {
        co_return invalid_input("there are " + std::to_string(adapters_.size()) +
                                " adapters, which is as many as the server holds (--max-adapters): unload one first");
    }
    adapters_.emplace(name, nullptr);
    const ScopeExit freed([this, &name] {
        if (adapters_[name] == nullptr) {
            adapters_.erase(name);
        }
    });
    Result<std::shared_ptr<models::LoadedAdapter>> loaded = co_await queue_.load_adapter(std::move(folder));
    if (!loaded) {
        co_return loaded.error();
    }
    adapters_[name] = std::move(*loaded);
    co_return Result<void>();
}

asio::awaitable<Result<void>> ServedAdapters::replace_weights(std::filesystem::path folder, std::string version) {
    Result<std::shared_ptr<models::LoadedAdapter>> loaded = co_await queue_.load_model(std::move(folder));
    if (!loaded) {
        co_return loaded.error();
    }
    weights_ = {std::move(*loaded), std::move(version)};
    co_return Result<void>();
}

bool ServedAdapters::unload(const std::string& name) {
    const auto found = adapters_.find(name);
    if (found == adapters_.end() || found->second == nullptr) {
        return false;
    }
    adapters_.erase(found);
    return true;
}

}  // namespace distilld::teacher
