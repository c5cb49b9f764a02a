// Runs cells for a context. A worker reads them from descriptor 4 and tells
// results on 5, so that it can stop a cell that keeps this thread busy; cells
// are evaluated here, as a console does: const may be declared again, await
// works at the top. Standard output and error belong to the cells; a mark ends
// each cell's part.
'use strict';
(() => {
  const {Worker} = require('worker_threads');
  const {Session} = require('inspector');
  const {inspect} = require('util');

  const worker = new Worker(`
    'use strict';
    const fs = require('fs');
    const net = require('net');
    const {parentPort} = require('worker_threads');
    const {Session} = require('inspector');

    const write = (fd, data) => {
      while (data.length > 0) {
        try {
          data = data.subarray(fs.writeSync(fd, data));
        } catch (e) {
          if (e.code !== 'EAGAIN') return;
          Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
        }
      }
    };
    const tell = message => write(5, Buffer.from(JSON.stringify(message) + '\\n'));

    let cell = 0, mark = null, timer = null;
    const finish = status => {
      clearTimeout(timer);
      write(1, mark);
      write(2, mark);
      mark = null;
      tell({type: 'done', status});
    };
    parentPort.on('message', m => {
      if (m.cell !== cell || mark === null) return;
      if (m.tell) tell(m.tell);
      if (m.done) finish(m.status);
    });
    const interrupt = () => {
      if (mark === null) return;
      const now = cell;
      const main = new Session(); // only now: while one is connected, process.exit() waits
      main.connectToMainThread();
      main.post('Runtime.terminateExecution', () => main.disconnect());
      timer = setTimeout(() => { // it waits for something, or was cut off behind an await
        if (cell !== now || mark === null) return;
        tell({type: 'error', name: 'Interrupted', value: 'The cell was interrupted', traceback: ''});
        finish(1);
      }, 500);
    };

    let held = [];
    let words = [];
    // A socket, not a file: a read that blocks a thread would block the exit.
    new net.Socket({fd: 4, readable: true, writable: false}).on('data', data => {
      for (let at; (at = data.indexOf(0)) >= 0; data = data.subarray(at + 1)) {
        words.push(Buffer.concat([...held, data.subarray(0, at)]));
        held = [];
        if (words[0].length === 0) { // an empty mark asks to interrupt
          words = [];
          interrupt();
        } else if (words.length === 2) {
          mark = words[0];
          parentPort.postMessage({cell: ++cell, code: words[1].toString()});
          words = [];
        }
      }
      held.push(data);
    }).on('end', () => process.kill(process.pid, 'SIGKILL'));
  `, {eval: true, stdin: false});

  // A pipe that is full takes the rest of what was printed later. The streams
  // are kept as they are now: cells may put others in their place.
  const printed = [process.stdout, process.stderr].map(stream => [stream, stream.write]);
  const flushed = then => {
    let left = printed.length + 1;
    const next = () => { if (--left === 0) then(); };
    for (const [stream, write] of printed) {
      if (stream.writable && stream.writableLength > 0) write.call(stream, '', next);
      else next();
    }
    next();
  };

  let current = 0;
  const send = message => worker.postMessage({cell: current, ...message});
  const text = value => {
    try {
      return inspect(value, {maxStringLength: 1 << 20, maxArrayLength: 1000});
    } catch {
      return '<a value that cannot be shown>';
    }
  };
  const bundle = (value, main) => {
    let data = {'text/plain': text(value)};
    try {
      const own = value !== null && value !== undefined && value[Symbol.for('Jupyter.display')];
      if (typeof own === 'function') data = {...data, ...JSON.parse(JSON.stringify(own.call(value)))};
    } catch {}
    return main ? {...data, is_main_result: true} : data;
  };
  globalThis.display = value => send({tell: {type: 'result', data: bundle(value, false)}});

  const fail = (name, value, stack) => {
    const lines = String(stack).split('\n');
    const own = lines.findIndex(line => line.includes('at Session.post (node:inspector'));
    send({tell: {type: 'error', name: String(name), value: String(value), traceback: (own < 0 ? lines : lines.slice(0, own)).join('\n')}});
  };
  const failed = error => {
    try {
      if (error instanceof Error) return fail(error.name, error.message, error.stack);
    } catch {}
    fail('Uncaught', text(error), '');
  };
  process.on('SIGINT', () => {});
  process.on('uncaughtException', error => console.error('Uncaught', error));

  const session = new Session();
  session.connect();
  const hold = new Map();
  const key = Symbol('abx');
  process[key] = (value, how) => how === 'error' ? failed(value) : value === undefined || send({tell: {type: 'result', data: bundle(value, true)}});
  // The values of cells come from the inspector as handles; this turns them
  // back into values.
  session.post('Runtime.evaluate', {expression: 'process[Object.getOwnPropertySymbols(process).find(s => s.description === "abx")]'},
    (error, got) => { hold.set('handler', got.result.objectId); });
  delete process[key];

  const pass = (result, how, then) => session.post('Runtime.callFunctionOn', {
    objectId: hold.get('handler'),
    functionDeclaration: 'function(value, how) { this(value, how) }',
    arguments: [
      result.objectId ? {objectId: result.objectId} :
        result.unserializableValue ? {unserializableValue: result.unserializableValue} : {value: result.value},
      {value: how},
    ],
  }, then);

  worker.on('message', ({cell, code}) => {
    current = cell;
    session.post('Runtime.evaluate', {expression: code, replMode: true, awaitPromise: true, objectGroup: 'cell'}, (error, got) => {
      if (cell !== current) return; // given up before
      const end = status => {
        session.post('Runtime.releaseObjectGroup', {objectGroup: 'cell'});
        flushed(() => { if (cell === current) send({done: true, status}); });
      };
      if (error) {
        fail('Interrupted', 'The cell was interrupted', '');
        end(1);
      } else if (got.exceptionDetails) {
        pass(got.exceptionDetails.exception || got.result, 'error', () => end(1));
      } else {
        pass(got.result, 'value', () => end(0));
      }
    });
  });
})();
