// The one place that knows the differences between the packaged cpp-httplib versions (0.11.4 of
// Debian 12, 0.14.3 of Ubuntu 24.04, 0.18.7 of Debian 13, and later ones). Only
// service/http/worker.cpp includes it.
#pragma once

#include <ctime>
#include <functional>
#include <string>
#include <utility>

// The library's headers are not clean under our warnings.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include <httplib.h>
#pragma GCC diagnostic pop

namespace tandem::service {

// A stream that reads from a prepared text and writes through `send`. The names of the waiting
// functions changed in 0.20: both sets are here, whichever the base declares is overridden.
class TextStream : public httplib::Stream {
 public:
  virtual bool send(const char* data, size_t size) = 0;
  [[nodiscard]] virtual bool alive() const = 0;

  void load(std::string text) {
    text_ = std::move(text);
    position_ = 0;
  }

  // Without `override`: not every version declares all of them.
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winconsistent-missing-override"
#endif
  virtual bool is_readable() const { return true; }
  virtual bool is_writable() const { return alive(); }
  virtual bool wait_readable() const { return true; }
  virtual bool wait_writable() const { return alive(); }
  virtual time_t duration() const { return 0; }
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

  ssize_t read(char* out, size_t size) override {
    const size_t part = text_.copy(out, size, position_);
    position_ += part;
    return static_cast<ssize_t>(part);
  }
  ssize_t write(const char* data, size_t size) override {
    return send(data, size) ? static_cast<ssize_t>(size) : -1;
  }
  using httplib::Stream::write;
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }

 private:
  std::string text_;
  size_t position_ = 0;
};

// Processes single requests from a TextStream; never listens.
class StreamServer : public httplib::Server {
 public:
  StreamServer() {
    // The library ends every stream when it believes that it does not listen.
    svr_sock_ = 0;
  }

  bool process(TextStream& stream, bool close_connection) {
    bool closed = false;
    return process_with(*this, stream, close_connection, closed);
  }

 private:
  template <typename Self>
  static bool process_with(Self& self, TextStream& stream, bool close_connection, bool& closed) {
    const std::function<void(httplib::Request&)> no_setup;
    if constexpr (requires { self.process_request(stream, close_connection, closed, no_setup); }) {
      return self.process_request(stream, close_connection, closed, no_setup);
    } else {
      return self.process_request(stream, std::string(), 0, std::string(), 0, close_connection,
                                  closed, no_setup);
    }
  }
};

}  // namespace tandem::service
