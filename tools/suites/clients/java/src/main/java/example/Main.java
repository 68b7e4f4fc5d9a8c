package example;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.function.Consumer;
import java.util.stream.Stream;
import redis.clients.jedis.ConnectionFactory;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisSocketFactory;
import redis.clients.jedis.Response;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.providers.PooledConnectionProvider;

/** First use of Palimpsest with Jedis. Usage: Main HOST:PORT HOST:PORT HOST:PORT */
public final class Main {
  private static final int TIMEOUT_MS = 5_000;

  /** Connects to the first address that answers. Any node serves any key. */
  record AnyNode(List<HostAndPort> addresses) implements JedisSocketFactory {
    @Override
    public Socket createSocket() {
      IOException failure = null;
      for (HostAndPort address : addresses) {
        try {
          Socket socket = new Socket();
          socket.setTcpNoDelay(true);
          socket.connect(new InetSocketAddress(address.getHost(), address.getPort()), TIMEOUT_MS);
          socket.setSoTimeout(TIMEOUT_MS);
          return socket;
        } catch (IOException error) {
          failure = error;
        }
      }
      throw new JedisConnectionException("no node answers", failure);
    }
  }

  /** A retried command may run twice, as with any server. ONCE makes a retry safe. */
  static UnifiedJedis connect(String[] addresses) {
    List<HostAndPort> nodes = Arrays.stream(addresses).map(HostAndPort::from).toList();
    var config = DefaultJedisClientConfig.builder().socketTimeoutMillis(TIMEOUT_MS).build();
    var connections = new ConnectionFactory(new AnyNode(nodes), config);
    var pool = new PooledConnectionProvider(connections);
    return new UnifiedJedis(pool, 20, Duration.ofSeconds(10));
  }

  /** Commands that the library has no method for. */
  enum Command implements ProtocolCommand {
    ONCE,
    DELEX;

    @Override
    public byte[] getRaw() {
      return name().getBytes(StandardCharsets.US_ASCII);
    }
  }

  /** Commands that run at most once, however often the library sends them. */
  static final class Once {
    private final UnifiedJedis client;
    private final String session = UUID.randomUUID().toString();
    private long sequence;

    Once(UnifiedJedis client) {
      this.client = client;
    }

    Object run(String... command) {
      sequence++;
      Stream<String> line = Stream.of(session, Long.toString(sequence));
      String[] arguments = Stream.concat(line, Arrays.stream(command)).toArray(String[]::new);
      return client.sendCommand(Command.ONCE, arguments);
    }
  }

  static void check(Object found, Object expected) {
    if (!Objects.equals(found, expected)) {
      throw new IllegalStateException(found + " instead of " + expected);
    }
  }

  static void strings(UnifiedJedis client) {
    check(client.set("greeting", "hello"), "OK");
    check(client.get("greeting"), "hello");
    check(client.get("absent"), null);
  }

  static void counters(UnifiedJedis client) {
    client.del("visits");
    check(client.incr("visits"), 1L);
    check(client.incrBy("visits", 10), 11L);
  }

  static void expiry(UnifiedJedis client) {
    client.set("session", "alice", SetParams.setParams().ex(60));
    long left = client.ttl("session");
    check(left > 0 && left <= 60, true);
    check(client.expire("session", 120), 1L);
    check(client.persist("session"), 1L);
    check(client.ttl("session"), -1L);
  }

  static void pipeline(UnifiedJedis client) {
    try (var pipe = client.pipelined()) {
      for (int number = 0; number < 100; number++) {
        pipe.set("item:" + number, Integer.toString(number));
      }
      Response<String> last = pipe.get("item:99");
      pipe.sync();
      check(last.get(), "99");
    }
  }

  static void lock(UnifiedJedis client) {
    SetParams free = SetParams.setParams().nx().px(30_000);
    client.del("lock");
    check(client.set("lock", "me", free), "OK");
    check(client.set("lock", "you", free), null);
    // Deletes the lock only if it is still mine.
    check(client.sendCommand(Command.DELEX, "lock", "IFEQ", "you"), 0L);
    check(client.sendCommand(Command.DELEX, "lock", "IFEQ", "me"), 1L);
  }

  static void once(UnifiedJedis client) {
    client.del("orders");
    String session = UUID.randomUUID().toString();
    for (int repeat = 0; repeat < 3; repeat++) {
      check(client.sendCommand(Command.ONCE, session, "1", "INCR", "orders"), 1L);
    }
    check(client.get("orders"), "1");
  }

  static void failover(UnifiedJedis client) {
    client.del("counted");
    Once counter = new Once(client);
    long expected = 0;
    System.out.println("ready to count");
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line : (Iterable<String>) lines.lines()::iterator) {
      if (line.equals("end")) {
        break;
      }
      for (int step = 0; step < 300; step++) {
        expected++;
        check(counter.run("INCR", "counted"), expected);
        if (expected % 50 == 0) {
          System.out.println("50");
        }
      }
      System.out.println("counted");
    }
    check(client.get("counted"), Long.toString(expected));
  }

  public static void main(String[] addresses) {
    Map<String, Consumer<UnifiedJedis>> subjects = new LinkedHashMap<>();
    subjects.put("strings", Main::strings);
    subjects.put("counters", Main::counters);
    subjects.put("expiry", Main::expiry);
    subjects.put("pipeline", Main::pipeline);
    subjects.put("lock", Main::lock);
    subjects.put("once", Main::once);
    subjects.put("failover", Main::failover);
    try (UnifiedJedis client = connect(addresses)) {
      subjects.forEach(
          (name, subject) -> {
            try {
              subject.accept(client);
              System.out.println("ok " + name);
            } catch (RuntimeException error) {
              System.out.println("FAILED " + name + ": " + error.getMessage());
            }
          });
    }
  }
}
